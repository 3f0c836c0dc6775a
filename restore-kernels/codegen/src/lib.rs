//! hetIR to PTX.
