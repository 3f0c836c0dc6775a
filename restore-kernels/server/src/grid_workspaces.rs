//! Where blocks of cooperative launches meet ([`hetckpt_ir::grid_workspace`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hetckpt_ir::grid_workspace::{BYTES, COUNT, PARAM_BYTES};
use hetckpt_ir::kernel::Kernel;
use parking_lot::Mutex;

/// The workspaces of a module, which its launches take one after another.
#[derive(Debug)]
pub struct GridWorkspaces {
    /// Address of the module's variable.
    addr: u64,
    num_launches: AtomicU32,
    /// Those that nobody takes any more.
    kept: Mutex<Vec<u64>>,
}

impl GridWorkspaces {
    /// In the variable at this address.
    #[must_use]
    pub fn at(addr: u64) -> Self {
        Self {
            addr,
            num_launches: AtomicU32::new(0),
            kept: Mutex::default(),
        }
    }

    /// A workspace that a stopped launch goes on with is left to it.
    pub fn keep(&self, addr: u64) {
        let range = self.addr..self.addr + u64::from(COUNT * BYTES);
        let mut kept = self.kept.lock();
        // There are as many as there may be blocks on a small device; one is always left.
        if range.contains(&addr) && kept.len() + 1 < COUNT as usize {
            kept.push(addr);
        }
    }

    fn next(&self) -> u64 {
        let kept = self.kept.lock();
        loop {
            let number = self.num_launches.fetch_add(1, Ordering::Relaxed) % COUNT;
            let addr = self.addr + u64::from(number * BYTES);
            if !kept.contains(&addr) {
                return addr;
            }
        }
    }
}

/// A kernel's parameter for a workspace.
#[derive(Clone, Debug)]
pub struct WorkspaceParam {
    offset: usize,
    workspaces: Arc<GridWorkspaces>,
}

impl WorkspaceParam {
    /// The kernel's, if it has one, and its module has `workspaces`.
    #[must_use]
    pub fn of(kernel: &Kernel, workspaces: Option<&Arc<GridWorkspaces>>) -> Option<Self> {
        Some(Self {
            offset: kernel.grid_workspace()?.offset as usize,
            workspaces: Arc::clone(workspaces?),
        })
    }

    /// The program's parameters, and behind them the address of the next workspace, or 0 where blocks cannot meet.
    #[must_use]
    pub fn append(&self, params: &[u8], is_cooperative: bool) -> Arc<[u8]> {
        let addr = if is_cooperative { self.workspaces.next() } else { 0 };
        let mut all = params.to_vec();
        all.resize(self.offset + PARAM_BYTES as usize, 0);
        all[self.offset..].copy_from_slice(&addr.to_le_bytes());
        all.into()
    }
}

/// The address that a launch of the kernel has in its parameters.
#[must_use]
pub fn workspace_of(kernel: &Kernel, params: &[u8]) -> Option<u64> {
    let offset = kernel.grid_workspace()?.offset as usize;
    Some(u64::from_le_bytes(*params.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_take_one_after_another_but_those_that_are_kept() {
        let workspaces = GridWorkspaces::at(4096);
        workspaces.keep(4096 + 8);
        workspaces.keep(4095);
        let all: Vec<u64> = (0..COUNT).map(|_| workspaces.next()).collect();
        assert_eq!(all[..3], [4096, 4096 + 16, 4096 + 24]);
        assert!(!all.contains(&(4096 + 8)) && all.iter().all(|addr| *addr < 4096 + 8 * 256));
        assert_eq!(all[255], 4096, "round again");
    }

    #[test]
    fn the_address_stands_behind_the_programs_parameters() {
        let param = WorkspaceParam {
            offset: 8,
            workspaces: Arc::new(GridWorkspaces::at(0x100)),
        };
        assert_eq!(
            param.append(&[7; 4], true)[..],
            [7, 7, 7, 7, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(param.append(&[7; 4], false)[4..], [0; 12]);
    }
}
