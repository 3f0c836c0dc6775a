//! The test programs' kernels: memory afterwards is what the interpreter leaves and what the sources say.

use std::collections::BTreeMap;

use hetckpt_abi::opencl_program::{OpenClProgram, Stops};
use hetckpt_abi::program::Program;
use hetckpt_abi::thread_state::ThreadStateLayout;
use hetckpt_codegen::opencl::{OpenClOptions, generate};
use hetckpt_interp::cases::{self, Case};
use hetckpt_interp::{GlobalMemory, Launch};
use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::bind_globals;
use opencl3::device::Device;

use crate::device::{self, ARENA_BASE, LaunchShape};

fn kernel_of(case: &Case) -> Kernel {
    let module = hetckpt_ptx::lower_module(case.ptx).unwrap();
    let mut kernel = module.kernels.into_iter().find(|k| k.name == case.kernel).unwrap();
    let addresses: BTreeMap<String, u64> = case.globals.iter().map(|(n, a)| ((*n).to_owned(), *a)).collect();
    let all = module
        .globals
        .iter()
        .map(|g| (g.name.clone(), *addresses.get(&g.name).unwrap_or(&ARENA_BASE)))
        .collect();
    bind_globals(&mut kernel, &all).unwrap();
    kernel
}

fn interpreted(case: &Case, kernel: &Kernel) -> GlobalMemory {
    let mut memory = GlobalMemory::new();
    for (address, bytes) in &case.memory {
        memory.map(*address, bytes.clone());
    }
    let program = Program::from_start(kernel.clone());
    let layout = ThreadStateLayout::new(kernel);
    let launch = Launch {
        dynamic_shared_bytes: case.dynamic_shared_bytes,
        ..Launch::new(&program, &layout, case.grid, case.block, &case.params)
    };
    hetckpt_interp::run(launch, &mut memory).unwrap();
    memory
}

fn check(name: &str) {
    let Some(device) = device::device() else {
        eprintln!("skipped: {name} (no OpenCL device)");
        return;
    };
    let all = cases::all();
    let case = all.iter().find(|case| case.name == name).unwrap();
    let kernel = kernel_of(case);
    let probed = hetckpt_probes::probe(&kernel, &Default::default()).unwrap();
    let layout = ThreadStateLayout::new(&probed);
    let program = Program::from_start(probed);
    let as_given = |block_list, has_votes_of_sub_groups| {
        let options = OpenClOptions {
            block_list,
            has_votes_of_sub_groups,
            ..OpenClOptions::default()
        };
        generate(&program, &layout, &options).unwrap()
    };
    let mut forms = vec![as_given(false, false)];
    forms.extend(Some(as_given(true, false)).filter(|form| form.stops == Stops::Blocks));
    // Building takes most of the time: where there are two forms, each is run in one way.
    let both = [1, 4];
    let ways: &[&[usize]] = if forms.len() == 1 {
        &[&both]
    } else {
        &[&both[..1], &both[1..]]
    };
    for (form, ways) in forms.iter().zip(ways) {
        check_generated(name, device, case, &kernel, form, ways);
    }
    let in_sub_groups = as_given(false, true);
    if in_sub_groups.text != forms[0].text && device::has_votes_of_sub_groups(device) {
        check_generated(name, device, case, &kernel, &in_sub_groups, &both[..1]);
    }
}

/// Runs it with its memory in as many buffers as each of `ways` says.
fn check_generated(
    name: &str,
    device: &Device,
    case: &Case,
    kernel: &Kernel,
    generated: &OpenClProgram,
    ways: &[usize],
) {
    let end = case
        .memory
        .iter()
        .map(|(at, bytes)| at + bytes.len() as u64)
        .max()
        .unwrap();
    let place = |at: u64| usize::try_from(at - ARENA_BASE).unwrap();
    let shape = LaunchShape {
        grid: [case.grid.x, case.grid.y, case.grid.z],
        block: [case.block.x, case.block.y, case.block.z],
        shared_bytes: kernel.shared.static_bytes,
        dynamic_shared_bytes: case.dynamic_shared_bytes,
    };
    let expected = interpreted(case, kernel);
    for &max_buffers in ways {
        let mut memory = vec![0; place(end)];
        for (at, bytes) in &case.memory {
            memory[place(*at)..][..bytes.len()].copy_from_slice(bytes);
        }
        assert!(!device::run_in(
            max_buffers,
            device,
            generated,
            shape,
            &case.params,
            &mut memory
        ));
        for (at, bytes) in &case.expected {
            assert_eq!(
                &memory[place(*at)..][..bytes.len()],
                bytes,
                "{name}, memory in {max_buffers}: the source says otherwise"
            );
        }
        for (at, bytes) in &case.memory {
            let range = expected.range(*at).unwrap();
            assert_eq!(
                &memory[place(*at)..][..bytes.len()],
                range,
                "{name}, memory in {max_buffers}: the interpreter says otherwise"
            );
        }
    }
}

macro_rules! programs {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*
    };
}

programs![
    vector_add,
    saxpy,
    matmul,
    reduce_values,
    scan_tiles,
    scan_tile_sums,
    bit_count,
    monte_carlo_pi,
    dense_relu,
    persistent,
    heat_step,
    peak_bits,
];
