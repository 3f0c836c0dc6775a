//! Building programs.

use std::fs;

use hetckpt_abi::opencl_program::Stops;
use hetckpt_codegen::spirv::Compiler;
use hetckpt_devices::device::{Code, Device as _, LoadRequest};
use hetckpt_devices::error::DeviceError;
use hetckpt_devices::opencl::{OpenClDevice, OpenClOptions, list};

use crate::fixture::{left, on_devices, on_devices_with};
use crate::programs::{expected, plain, steps};

fn log_of(device: &OpenClDevice, request: &LoadRequest) -> String {
    match device.load(request).map(|_| ()) {
        Err(DeviceError::Build { log, .. }) => log,
        other => panic!("{other:?}"),
    }
}

#[test]
fn describes_what_it_opens() {
    on_devices(|bench| {
        let listed = list().unwrap();
        let description = bench.device.describe();
        let (same, capabilities) = listed.devices.iter().find(|(d, _)| d.id == description.id).unwrap();
        assert_eq!((&same.name, same.kind), (&description.name, "opencl"));
        assert_eq!(capabilities, bench.device.capabilities());
        assert!(description.free_bytes < description.total_bytes);
        eprintln!("{description:?}");
        eprintln!("{:?}", bench.device.capabilities());
        let (shares, sees) = (bench.device.shares_memory(), bench.device.sees_host_writes);
        eprintln!("shares memory: {shares}, sees host writes: {sees}");
        assert!(sees || !shares);
    });
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let error = OpenClDevice::open(77, 0, &OpenClOptions::default()).err().unwrap();
    assert!(error.to_string().contains("opencl:77:0"), "{error}");
}

#[test]
fn shows_what_the_compiler_says() {
    on_devices(|bench| {
        let log = log_of(&bench.device, &plain("__kernel void plain() { no_such_name = 1; }"));
        assert!(log.contains("no_such_name"), "{log}");
        let log = log_of(&bench.device, &plain("__kernel void other() {}"));
        assert!(log.contains("CL_INVALID_KERNEL_NAME"), "{log}");
    });
}

#[test]
fn names_what_the_device_lacks() {
    on_devices(|bench| {
        let device = &bench.device;
        let mut request = steps(Stops::Threads, 32);
        let Code::OpenClC(program) = &mut request.code else {
            return;
        };
        let required = &mut program.requires;
        required.fp64 = true;
        required.int64_base_atomics = true;
        required.int64_extended_atomics = true;
        required.f32_subnormals = true;
        required.f64_subnormals = true;
        required.correctly_rounded_divide_sqrt = true;
        let missing = device.capabilities().missing(required);
        if missing.is_empty() {
            device.load(&request).unwrap();
        } else {
            let log = log_of(device, &request);
            assert!(missing.iter().all(|what| log.contains(what)), "{log}");
        }
        request.code = Code::Ptx(String::new());
        assert!(log_of(device, &request).contains("OpenCL C"));
    });
}

#[test]
fn takes_programs_from_the_cache_unless_they_are_damaged() {
    let dir = std::env::temp_dir().join(format!("hetckpt-opencl-cache-{}", std::process::id()));
    let options = OpenClOptions {
        cache_dir: Some(dir.clone()),
        ..OpenClOptions::default()
    };
    on_devices_with(&options, |bench| {
        for _ in 0..2 {
            let kernel = bench.device.load(&steps(Stops::Threads, 32)).unwrap();
            let queue = bench.device.create_queue(0).unwrap();
            bench.clear(64);
            let launch = queue.launch(bench.launch(&kernel, 2, 32, 1000)).unwrap();
            assert!(left(launch.wait()).is_finished());
            assert_eq!(bench.results(64), [expected(1000); 64]);
        }
        for file in fs::read_dir(&dir).unwrap() {
            fs::write(file.unwrap().path(), b"HKOCLBI1 and nothing that fits").unwrap();
        }
    });
    let _ = fs::remove_dir_all(dir);
}

/// SPIR-V, where the device takes that and there is a clang to make it.
#[test]
fn takes_programs_as_spirv() {
    if let Err(why) = Compiler::find() {
        eprintln!("skipped: takes_programs_as_spirv ({why})");
        return;
    }
    let options = OpenClOptions {
        il_compiler: Some(|program| {
            let made = Compiler::find().and_then(|compiler| compiler.binary(program));
            Ok(made?)
        }),
        prefer_il: true,
        ..OpenClOptions::default()
    };
    on_devices_with(&options, |bench| {
        if bench.device.capabilities().il_version.is_none() {
            eprintln!(
                "skipped: takes_programs_as_spirv ({} takes none)",
                bench.device.describe().name
            );
            return;
        }
        for stops in [Stops::Threads, Stops::Blocks] {
            let kernel = bench.device.load(&steps(stops, 32)).unwrap();
            let queue = bench.device.create_queue(0).unwrap();
            bench.clear(64);
            let launch = queue.launch(bench.launch(&kernel, 2, 32, 1000)).unwrap();
            assert!(left(launch.wait()).is_finished());
            if stops == Stops::Threads {
                assert_eq!(bench.results(64), [expected(1000); 64]);
            }
        }
        let log = log_of(&bench.device, &plain("__kernel void plain() { no_such_name = 1; }"));
        assert!(log.contains("no_such_name"), "{log}");
    });
}
