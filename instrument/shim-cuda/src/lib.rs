//! libcuda.so.1 that forwards the driver API to a device server.
