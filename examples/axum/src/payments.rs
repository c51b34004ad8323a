//! Payments, a line of JSON each in a file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A payment.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Payment {
    pub(crate) id: String,
    pub(crate) amount: u64,
    pub(crate) currency: String,
    /// The client's `Idempotency-Key`.
    pub(crate) key: String,
    /// The key of the record, which is different for each principal.
    pub(crate) record_key: String,
    pub(crate) fence: u64,
    pub(crate) attempt: u8,
    pub(crate) is_recovery: bool,
}

/// The file of all payments. In place of a payment provider.
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

    /// Makes a payment: appends its line in one write, so that a killed process leaves no half of it.
    pub(crate) fn make(&self, payment: &Payment) -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).append(true).open(&self.path)?;
        let mut line = if ends_in_a_line(&mut file)? { Vec::new() } else { vec![b'\n'] };
        serde_json::to_writer(&mut line, payment)?;
        line.push(b'\n');
        file.write_all(&line)?;
        file.flush()
    }

    /// The first payment for which this is true.
    pub(crate) fn find(&self, is_wanted: impl Fn(&Payment) -> bool) -> io::Result<Option<Payment>> {
        for line in BufReader::new(File::open(&self.path)?).lines() {
            // A damaged line is no payment.
            let Ok(payment) = serde_json::from_str(&line?) else { continue };
            if is_wanted(&payment) {
                return Ok(Some(payment));
            }
        }
        Ok(None)
    }
}

/// Whether the last line is complete. A full disk may have cut it off.
fn ends_in_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == [b'\n'])
}
