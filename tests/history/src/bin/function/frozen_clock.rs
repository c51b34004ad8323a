//! A monotonic clock that does not advance while the process is frozen between invocations, as that of a suspended
//! machine does not. The wall clock advances.
//!
//! The torture writes how long it has frozen the process to a file. On macOS, where the clocks are read by other
//! functions, both advance.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "`clock_gettime` is a function of libc"))]

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// How long this process was frozen, ns: 8 bytes in the byte order of the machine.
static FROZEN_NS: OnceLock<File> = OnceLock::new();

/// From now on, the monotonic clock of this process is behind by the time in this file.
///
/// # Errors
/// The file cannot be opened.
pub(crate) fn follow(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    FROZEN_NS.get_or_init(|| file);
    Ok(())
}

#[cfg(target_os = "linux")]
mod replaced {
    use std::os::unix::fs::FileExt as _;

    use libc::{CLOCK_MONOTONIC, c_int, c_long, clockid_t, timespec};

    const NS_PER_S: i64 = 1_000_000_000;

    /// The clock of libc, as the standard library and tokio read it.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
        // SAFETY: The contract is that of the function which is replaced.
        if unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } != 0 {
            return -1;
        }
        let mut frozen_ns = [0; 8];
        if clock == CLOCK_MONOTONIC
            && let Some(file) = super::FROZEN_NS.get()
            && file.read_exact_at(&mut frozen_ns, 0).is_ok()
        {
            // SAFETY: The system has written the time there.
            let time = unsafe { &mut *time };
            let ns = time.tv_sec * NS_PER_S + time.tv_nsec - i64::from_ne_bytes(frozen_ns);
            (time.tv_sec, time.tv_nsec) = (ns / NS_PER_S, c_long::from(ns % NS_PER_S));
        }
        0
    }
}
