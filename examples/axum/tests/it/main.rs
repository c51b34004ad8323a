//! The payments API as a process, on a real Redis, with a client that the project did not write.
