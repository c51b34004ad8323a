//! The simulation is repeatable, finds nothing, and its Redis is like Redis.

mod conformance;
