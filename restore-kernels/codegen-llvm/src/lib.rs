//! hetIR to native code through LLVM, as a shared object of its own.
