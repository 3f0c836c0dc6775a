//! Words between shim, server, plugin and command line.
