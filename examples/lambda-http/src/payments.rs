//! Payments, a line of JSON each in a file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
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

    /// Makes a payment: appends its line in one write, so that a killed process leaves no half of it.
    pub(crate) fn make(&self, payment: &Payment) -> io::Result<()> {
        let mut line = serde_json::to_vec(payment)?;
        line.push(b'\n');
        OpenOptions::new().append(true).open(&self.path)?.write_all(&line)
    }

    /// The payment of this amount with this key.
    pub(crate) fn find(&self, key: &str, amount: u64) -> io::Result<Option<Payment>> {
        for line in BufReader::new(File::open(&self.path)?).lines() {
            // A damaged line is no payment.
            let Ok(payment) = serde_json::from_str::<Payment>(&line?) else { continue };
            if payment.key == key && payment.amount == amount {
                return Ok(Some(payment));
            }
        }
        Ok(None)
    }
}
