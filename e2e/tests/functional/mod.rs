//! What a user expects of `hetckpt`, tried with the real CRIU.
//!
//! Programs start on `HETCKPT_E2E_FROM` and are restored on `HETCKPT_E2E_TO` (default: `auto`).
//! `HETCKPT_PREEMPTIONS` is the number of random preemptions of each program (2), `HETCKPT_SEED` repeats a run.
//! `HETCKPT_E2E_CRIU_PLUGINS` is the folder of CRIU's own plugins, which else are looked for where CRIU was installed.

mod preempt;
mod streamed;
mod incremental;
mod live;
mod suspend;
mod unmodelled;
mod mid_kernel;
mod life_cycle;
mod command_line;
mod migrate_script;
mod ordinary_programs;
mod plain_criu;
mod rpc;
mod criu_options;
mod stand_in_driver;
mod management_library;
mod two_forms;
mod plugin_option;
mod other_plugins;
mod criu_plugins;
mod doctor;
mod devices;
mod kernel;
mod check;
mod namespaces;
mod intruders;
mod device_output;
mod clocks;
mod connections;
mod way_back;
mod pinned_memory;
mod managed_memory;
mod random_managed;
mod program_api;
mod python_startup;
mod unwritable_results;
mod other_users;
mod opencl_language;
mod opencl_programs;
mod opencl_refusals;
mod opencl_check;
mod bounded_launches;

use hetckpt_e2e::runner::Test;

/// The tests.
pub fn tests() -> Vec<Test> {
    let mut tests = mid_kernel::tests();
    tests.extend(incremental::tests());
    tests.extend(live::tests());
    tests.extend(life_cycle::tests());
    tests.extend(command_line::tests());
    tests.extend(migrate_script::tests());
    tests.extend(plain_criu::tests());
    tests.extend(rpc::tests());
    tests.extend(criu_options::tests());
    tests.extend(ordinary_programs::tests());
    tests.extend(stand_in_driver::tests());
    tests.extend(management_library::tests());
    tests.extend(two_forms::tests());
    tests.extend(plugin_option::tests());
    tests.extend(other_plugins::tests());
    tests.extend(criu_plugins::tests());
    tests.extend(doctor::tests());
    tests.extend(devices::tests());
    tests.extend(kernel::tests());
    tests.extend(check::tests());
    tests.extend(namespaces::tests());
    tests.extend(intruders::tests());
    tests.extend(device_output::tests());
    tests.extend(clocks::tests());
    tests.extend(connections::tests());
    tests.extend(way_back::tests());
    tests.extend(pinned_memory::tests());
    tests.extend(managed_memory::tests());
    tests.extend(random_managed::tests());
    tests.extend(program_api::tests());
    tests.extend(python_startup::tests());
    tests.extend(unwritable_results::tests());
    tests.extend(other_users::tests());
    tests.extend(opencl_language::tests());
    tests.extend(opencl_programs::tests());
    tests.extend(opencl_refusals::tests());
    tests.extend(opencl_check::tests());
    tests.extend(bounded_launches::tests());
    tests.extend(preempt::tests());
    tests.extend(streamed::tests());
    tests.extend(suspend::tests());
    tests.extend(unmodelled::tests());
    tests
}
