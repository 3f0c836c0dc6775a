//! Where variables in managed memory (`__managed__`) lie: the application finds the places.

use std::collections::HashMap;

use hetckpt_devices::device::Device;
use hetckpt_ir::module::Module as IrModule;
use hetckpt_ring::reply::{MANAGED_NAMES_BYTES, ManagedVariable};

use crate::cuda_result;
use crate::load_failure::{LoadFailure, NotLoaded};

/// Where the application has placed variables, by name.
pub type Places = HashMap<String, u64>;

/// The name of a variable in managed memory.
pub fn first_managed(modules: &[IrModule]) -> Option<String> {
    let mut globals = modules.iter().flat_map(|module| &module.globals);
    globals
        .find(|global| global.is_managed)
        .map(|global| global.name.clone())
}

/// Looks whether each variable in managed memory can be there, and has its place.
///
/// # Errors
/// [`NotLoaded`].
pub fn check_places(modules: &[IrModule], places: &Places, device: &dyn Device) -> Result<(), NotLoaded> {
    let globals = modules.iter().flat_map(|module| &module.globals);
    let unplaced = globals.filter(|g| g.is_managed && !g.is_extern && !places.contains_key(&g.name));
    let mut room = MANAGED_NAMES_BYTES;
    let mut wanted = Vec::new();
    for global in unplaced {
        let refused = |why: &str| {
            let log = format!("variable `{}` is managed, {why}", global.name);
            Err(LoadFailure::new(cuda_result::NOT_SUPPORTED, log).into())
        };
        if !device.reaches_host_memory() {
            return refused("and the device does not share memory with the program");
        }
        let Some(left) = room.checked_sub(global.name.len() + 16) else {
            if wanted.is_empty() {
                return refused("and its name is too long");
            }
            break;
        };
        room = left;
        wanted.push(ManagedVariable {
            name: global.name.clone(),
            size_bytes: global.size_bytes,
        });
    }
    if wanted.is_empty() {
        Ok(())
    } else {
        Err(NotLoaded::Unplaced(wanted))
    }
}
