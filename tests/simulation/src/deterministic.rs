//! Replaces the clock, the random source, the process id and the standard output of libc in a thread that simulates.
//!
//! All that this process links reads time and random bytes by these functions of libc: the standard library (also the
//! keys of each `HashMap`), tokio, the client library of Redis and the function. Other threads get those of the system.
//! The metrics that the function prints are recorded instead. The verdict is made in another thread, whose `HashMap`s have
//! random keys: it iterates over none.
#![expect(unsafe_code, reason = "these are functions of libc")]
#![expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "as the functions of libc do")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the contract is that of the function which is replaced")]

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::slice;

use history::Rng;
use libc::{CLOCK_REALTIME, CLOCK_REALTIME_COARSE, c_int, c_long, c_uint, clockid_t, pid_t, size_t, ssize_t, timespec};
use tokio::time::Instant;

/// When each simulation begins, seconds since 1970.
const BEGINS_S: i64 = 1_800_000_000;

thread_local! {
    /// The state of the random source, if this thread simulates.
    static RANDOM: Cell<Option<Rng>> = const { Cell::new(None) };
    /// When the simulation began, by the paused clock of tokio.
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The metrics that were printed.
    static PRINTED: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// From now on, the random bytes of this thread depend on the seed.
pub fn seed(seed: u64) {
    RANDOM.set(Some(Rng::new(seed)));
}

/// Ends this process after this time of the real clock, s.
pub fn end_after(seconds: u32) {
    unsafe { libc::alarm(seconds) };
}

/// From now on, the clocks of this thread are the paused clock of its tokio runtime.
pub fn begin() {
    BEGAN.set(Some(Instant::now()));
}

/// The metrics that this thread has printed.
pub fn printed() -> Vec<Vec<u8>> {
    PRINTED.take()
}

/// Since the simulation began.
fn elapsed() -> Option<std::time::Duration> {
    // Not in a thread that ends, and not while tokio reads this clock.
    let began = BEGAN.try_with(Cell::take).ok().flatten()?;
    let elapsed = tokio::runtime::Handle::try_current().is_ok().then(|| Instant::now() - began);
    BEGAN.set(Some(began));
    elapsed
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let Some(elapsed) = elapsed() else {
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as c_int;
    };
    let since = if matches!(clock, CLOCK_REALTIME | CLOCK_REALTIME_COARSE) { BEGINS_S } else { 1000 };
    let seconds = since + i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX - since);
    unsafe { time.write(timespec { tv_sec: seconds, tv_nsec: c_long::from(elapsed.subsec_nanos()) }) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, length: size_t, flags: c_uint) -> ssize_t {
    let Some(mut rng) = RANDOM.try_with(Cell::take).ok().flatten() else {
        return unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) } as ssize_t;
    };
    if length > 0 {
        unsafe { slice::from_raw_parts_mut(buffer, length) }.fill_with(|| rng.byte());
    }
    RANDOM.set(Some(rng));
    length as ssize_t
}

/// The names of history files contain it, and the verdict contains these names.
#[unsafe(no_mangle)]
unsafe extern "C" fn getpid() -> pid_t {
    let simulates = RANDOM.try_with(|rng| {
        let state = rng.take();
        let is_seeded = state.is_some();
        rng.set(state);
        is_seeded
    });
    if simulates == Ok(true) { 1 } else { unsafe { libc::syscall(libc::SYS_getpid) as pid_t } }
}

/// How a document in the Embedded Metric Format begins.
const METRICS: &[u8] = br#"{"_aws""#;

#[unsafe(no_mangle)]
unsafe extern "C" fn write(file: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    if file == libc::STDOUT_FILENO && length > 0 {
        let bytes = unsafe { slice::from_raw_parts(buffer.cast::<u8>(), length) };
        if bytes.starts_with(METRICS) && PRINTED.try_with(|printed| printed.borrow_mut().push(bytes.to_vec())).is_ok() {
            return length as ssize_t;
        }
    }
    unsafe { libc::syscall(libc::SYS_write, file, buffer, length) as ssize_t }
}
