//! Figures of the device: pause latency, copies, order, held launches, faults.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hetckpt_devices::cuda::CudaDevice;
use hetckpt_devices::device::{Blocks, DEVICE_BASE, Device, DeviceDescription, Outcome};

use crate::cases::{Arg, Case, cases};
use crate::forms::{Forms, read_module};
use crate::trial::{Random, Setup, launch_of};

fn percentile(sorted: &[Duration], part: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}

pub fn run(device: &CudaDevice, folder: &Path, about: &DeviceDescription) {
    copies(device, about);
    for kernel in ["spin", "matmul", "persistent", "bit_count"] {
        pause_latency(device, folder, kernel);
    }
    order(device, folder);
    fault(device, folder);
}

fn copies(device: &CudaDevice, about: &DeviceDescription) {
    let size = (2u64 << 30).min(about.total_bytes / 8);
    let mut host = vec![1u8; size as usize];
    let start = Instant::now();
    device.map(DEVICE_BASE, size).expect("memory");
    let mapped = start.elapsed();
    for _ in 0..2 {
        let start = Instant::now();
        device.write(DEVICE_BASE, &host).expect("copy");
        let written = start.elapsed();
        let start = Instant::now();
        device.read(DEVICE_BASE, &mut host).expect("copy");
        let read = start.elapsed();
        let rate = |t: Duration| size as f64 / t.as_secs_f64() / 1e9;
        println!(
            "map {size:#x} in {mapped:?}; write {:.1} GB/s, read {:.1} GB/s",
            rate(written),
            rate(read)
        );
    }
    let start = Instant::now();
    for _ in 0..100 {
        device.read(DEVICE_BASE, &mut host[..4]).expect("copy");
    }
    println!("read of 4 bytes: {:?}", start.elapsed() / 100);
    device.unmap(DEVICE_BASE, size).expect("unmap");
}

fn pause_latency(device: &CudaDevice, folder: &Path, kernel: &str) {
    let case = cases().into_iter().find(|c| c.kernel == kernel).expect("a case");
    let (text, module) = read_module(folder, case.file);
    let found = module
        .kernels
        .iter()
        .find(|k| k.name.contains(case.kernel))
        .expect("the kernel")
        .clone();
    let mut setup = Setup::new(&case, &module, &found.params);
    setup.set_iterations(20_000_000);
    device.map(DEVICE_BASE, setup.mapped_bytes()).expect("memory");
    device.write(DEVICE_BASE, &setup.image).expect("copy");
    let forms = Forms::new(device, &text, found, &setup.globals);
    let queue = device.create_queue(0).expect("a queue");
    let mut random = Random(3);
    let (mut stops, mut requests, mut captures, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..100 {
        device.write(DEVICE_BASE, &setup.image).expect("copy");
        let running = queue
            .launch(launch_of(&case, &setup, &forms.ordinary, Blocks::All))
            .expect("a launch");
        std::thread::sleep(Duration::from_micros(500 + random.next() % 2000));
        let start = Instant::now();
        device.request_pause().expect("a pause");
        requests.push(start.elapsed());
        running.wait_stopped();
        stops.push(start.elapsed());
        let start = Instant::now();
        let Outcome::Paused(left) = running.wait() else {
            panic!("a kernel of minutes is paused")
        };
        captures.push(start.elapsed());
        bytes = left
            .paused
            .iter()
            .map(|b| b.registers.len() + b.shared.len() + b.local.len())
            .sum();
        device.end_pause().expect("the pause's end");
    }
    for list in [&mut stops, &mut requests, &mut captures] {
        list.sort();
    }
    println!(
        "pause of {kernel}: stopped p50 {:?} p99 {:?} max {:?}; request p50 {:?}; capture p50 {:?} of {bytes} bytes",
        percentile(&stops, 0.5),
        percentile(&stops, 0.99),
        stops[stops.len() - 1],
        percentile(&requests, 0.5),
        percentile(&captures, 0.5)
    );
    drop(queue);
    device.unmap(DEVICE_BASE, setup.mapped_bytes()).expect("unmap");
}

/// Launches behind a paused one, and those given while paused, do nothing until they are started again.
fn order(device: &CudaDevice, folder: &Path) {
    let case = Case {
        args: vec![Arg::Words(1056 * 256), Arg::Iterations(2_000_000)],
        ..cases().pop().expect("spin")
    };
    let (text, module) = read_module(folder, case.file);
    let found = module.kernels[0].clone();
    let setup = Setup::new(&case, &module, &found.params);
    device.map(DEVICE_BASE, setup.mapped_bytes()).expect("memory");
    device.write(DEVICE_BASE, &setup.image).expect("copy");
    let forms = Forms::new(device, &text, found, &setup.globals);
    let queue = device.create_queue(0).expect("a queue");
    let launch = launch_of(&case, &setup, &forms.ordinary, Blocks::All);
    let first = queue.launch(launch.clone()).expect("a launch");
    let second = queue.launch(launch.clone()).expect("a launch");
    std::thread::sleep(Duration::from_millis(3));
    device.request_pause().expect("a pause");
    let third = queue.launch(launch).expect("a launch");
    let blocks = u64::from(case.grid[0]);
    let mut rests = Vec::new();
    for (i, one) in [first, second, third].into_iter().enumerate() {
        let Outcome::Paused(left) = one.wait() else {
            panic!("launch {i} was paused")
        };
        assert!(
            i == 0 || (left.paused.is_empty() && left.num_not_started() == blocks),
            "launch {i} has not started"
        );
        rests.push(Arc::new(left));
    }
    device.end_pause().expect("the pause's end");
    for rest in rests {
        let kernel = forms.continuation(&rest, false);
        let outcome = queue
            .launch(launch_of(&case, &setup, &kernel, Blocks::Rest(rest)))
            .expect("a launch")
            .wait();
        assert!(
            matches!(outcome, Outcome::Finished),
            "a run that nobody pauses finishes"
        );
    }
    println!("launches behind a paused one are held back: ok");
    drop(queue);
    device.unmap(DEVICE_BASE, setup.mapped_bytes()).expect("unmap");
}

/// Last, since it leaves the device unusable.
fn fault(device: &CudaDevice, folder: &Path) {
    let case = Case {
        args: vec![Arg::U64(64), Arg::U64(1)],
        ..cases().pop().expect("spin")
    };
    let (text, module) = read_module(folder, case.file);
    let found = module.kernels[0].clone();
    let setup = Setup::new(&case, &module, &found.params);
    let forms = Forms::new(device, &text, found, &setup.globals);
    let queue = device.create_queue(0).expect("a queue");
    let outcome = queue
        .launch(launch_of(&case, &setup, &forms.ordinary, Blocks::All))
        .expect("a launch")
        .wait();
    println!("a kernel that reads address 64: {outcome:?}");
    let after = queue
        .launch(launch_of(&case, &setup, &forms.ordinary, Blocks::All))
        .map(|l| l.wait());
    println!("a launch after it: {:?}", after.map_err(|e| e.to_string()));
}
