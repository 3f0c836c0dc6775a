//! Variables of a module that host and kernels reach at the same address (`__managed__`): the library finds places for
//! them in managed memory before the module is loaded.

use std::collections::HashMap;

use hetckpt_ring::command::{Command, DeviceIndex, ModuleId};
use hetckpt_ring::reply::ManagedVariable;

use crate::device::Device;
use crate::host_areas;
use crate::managed_faults;
use crate::result::Outcome;

/// Those of one module.
#[derive(Debug, Default)]
pub struct PlacedVariables {
    /// Address and size by name.
    places: HashMap<String, (u64, u64)>,
}

impl PlacedVariables {
    /// True if it is one of them.
    pub fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// Finds a place for a variable and tells the server. A server that was restored may ask again.
    pub fn place(&mut self, device: &Device, module: ModuleId, variable: ManagedVariable) -> Outcome {
        let ManagedVariable { name, size_bytes } = variable;
        let addr = match self.places.get(&name) {
            Some(&(addr, _)) => addr,
            None => {
                let mut pool = device.managed();
                managed_faults::offer(device);
                host_areas::take_zeroed(device, &mut pool, size_bytes.max(1))?
            }
        };
        self.places.insert(name.clone(), (addr, size_bytes.max(1)));
        device.send(Command::ModulePlace { module, name, addr })
    }

    /// Gives the memory back, once nothing that is queued uses it. What cannot be given back stays taken.
    pub fn give_back(&self, device: &Device) {
        if self.places.is_empty() {
            return;
        }
        let idle = device.call_raw(Command::Synchronize {
            device: DeviceIndex::FIRST,
        });
        if idle.is_err() {
            return;
        }
        for &(addr, size_bytes) in self.places.values() {
            let _ = host_areas::give_back(device, &mut device.managed(), addr, size_bytes);
        }
    }
}
