//! What blocks of a cooperative launch meet by (`cooperative_groups::grid_group`): 8 bytes of device memory whose
//! address the driver puts into `%envreg1` (high word) and `%envreg2`, or 0 for other launches. The program's code
//! counts in the second word, of which only the topmost bit is another after a barrier; so any launch may follow.
//!
//! Here a kernel that reads these registers has one parameter more, behind its own, which is the address. Its module
//! has a variable with workspaces for the launches that are on the device at once.

/// The parameter: a `u64`.
pub const PARAM: &str = "__hetckpt_grid_workspace";
/// Bytes of the parameter, and its alignment.
pub const PARAM_BYTES: u32 = 8;
/// The variable.
pub const VARIABLE: &str = "__hetckpt_grid_workspaces";
/// Bytes of a workspace.
pub const BYTES: u32 = 8;
/// Workspaces of a module. Each takes at least one block on the device.
pub const COUNT: u32 = 256;
