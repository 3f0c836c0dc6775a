//! Graphs: what a program records of work, to launch it again and again.
//!
//! A graph is data of the program's, so it is kept here, in the program's own memory: a snapshot has it without further
//! ado. A launch gives its operations to the stream one after another, in an order that its edges allow.

pub mod operation;
pub mod node;
pub mod executable;
pub mod capture;
