//! The device server: one per application, holder of the only driver.
