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
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(&path)?;
        // A line that a full disk cut off.
        if file.metadata()?.len() > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != [b'\n'] {
                file.write_all(b"\n")?;
            }
        }
        Ok(Self { path })
    }

    /// Makes a payment: appends its line in one write, so that a killed process leaves no half of it.
    pub(crate) fn make(&self, payment: &Payment) -> io::Result<()> {
        let mut line = serde_json::to_vec(payment)?;
        line.push(b'\n');
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
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
