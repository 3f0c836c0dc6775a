//! CRIU plugin hetgpu: device state beside CRIU's images.
