//! Payments, a line of JSON each in a file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A payment.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Payment {
    pub(crate) id: u64,
    /// The key of the record, which is different for each principal.
    pub(crate) key: String,
    pub(crate) amount: u64,
    pub(crate) fence: u64,
    pub(crate) is_recovery: bool,
}

/// The file of all payments. In place of a payment provider: on Lambda each process has a file of its own.
#[derive(Debug)]
pub(crate) struct Payments {
    path: PathBuf,
}

impl Payments {
    /// Opens the file, and creates it if it does not exist.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(&path)?;
        Ok(Self { path })
    }

    /// Makes a payment: appends its line in one write, so that a killed process leaves no half of it. The file is locked,
    /// because its last line may be incomplete while another process appends it.
    pub(crate) fn make(&self, payment: &Payment) -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).append(true).open(&self.path)?;
        file.lock()?;
        let line = line(&mut file, payment)?;
        file.write_all(&line)
    }

    /// The payment of this amount with this key.
    pub(crate) fn find(&self, key: &str, amount: u64) -> io::Result<Option<Payment>> {
        for line in BufReader::new(File::open(&self.path)?).split(b'\n') {
            // A damaged line is no payment. It may end within a character.
            let Ok(payment) = serde_json::from_slice::<Payment>(&line?) else { continue };
            if payment.key == key && payment.amount == amount {
                return Ok(Some(payment));
            }
        }
        Ok(None)
    }
}

/// The line of a payment. It begins with a line end if the last line of the file has none: a full disk may have cut it
/// off.
fn line(file: &mut File, payment: &Payment) -> io::Result<Vec<u8>> {
    let mut line = if ends_in_a_line(file)? { Vec::new() } else { vec![b'\n'] };
    serde_json::to_writer(&mut line, payment)?;
    line.push(b'\n');
    Ok(line)
}

fn ends_in_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == [b'\n'])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "an unexpected error must fail the test")]

    use std::{fs, thread};

    use super::*;

    fn payment(key: &str) -> Payment {
        Payment { id: 1, key: key.into(), amount: 1250, fence: 1, is_recovery: false }
    }

    fn keys(payments: &Payments) -> [bool; 2] {
        ["zahlung_ä", "zahlung_ü"].map(|key| payments.find(key, 1250).unwrap().is_some())
    }

    /// The threads stand for processes that share the file.
    #[test]
    fn payments_that_are_made_at_the_same_time_have_a_line_each() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("payments");
        let payments = Payments::open(path.clone()).unwrap();
        let make = || (0..5000).for_each(|_| payments.make(&payment("k")).unwrap());
        thread::scope(|scope| [scope.spawn(make), scope.spawn(make)].map(|made| made.join().unwrap()));
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 10_000);
    }

    /// A full disk cuts off a line at any byte, also within a character.
    #[test]
    fn a_payment_after_a_line_that_was_cut_off_is_found_by_its_recovery() {
        let whole = serde_json::to_string(&payment("zahlung_ü")).unwrap();
        for length in 0..=whole.len() {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("payments");
            fs::write(&path, &whole.as_bytes()[..length]).unwrap();
            let payments = Payments::open(path.clone()).unwrap();
            assert_eq!(keys(&payments), [false, length == whole.len()], "{length}");
            payments.make(&payment("zahlung_ä")).unwrap();
            assert_eq!(keys(&payments), [true, length == whole.len()], "{length}");
            payments.make(&payment("zahlung_ü")).unwrap();
            assert_eq!(keys(&payments), [true, true], "{length}");
            let lines = fs::read(&path).unwrap().split(|byte| *byte == b'\n').count();
            assert_eq!(lines, if length == 0 { 3 } else { 4 }, "a line for each payment, and the damaged one");
        }
    }
}
