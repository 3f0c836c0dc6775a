//! PTX front end: text to AST to hetIR.
