//! `hetckpt devices`: what it tells of OpenCL devices, for people and for scripts.

use anyhow::{Context as _, Result, ensure};
use hetckpt_e2e::hetckpt;
use hetckpt_e2e::installation::{Installation, Requirement};
use hetckpt_e2e::runner::{Context, Test};
use serde_json::Value;

/// The tests.
pub fn tests() -> Vec<Test> {
    vec![Test::new("devices_tells_of_opencl_devices", tells_of_opencl_devices).needs(&[Requirement::OpenclDevice])]
}

fn tells_of_opencl_devices(context: &mut Context) -> Result<()> {
    let devices = Installation::get().devices()?;
    let listed = hetckpt::run(&context.sandbox, ["devices"])?.success("devices")?.stdout;
    for device in devices.iter().filter(|device| device["kind"] == "opencl") {
        has_all_fields(device).with_context(|| device.to_string())?;
        // The device's line, and the one below it with what only OpenCL devices have.
        let id = device["id"].as_str().unwrap_or_default();
        let mut lines = listed
            .lines()
            .skip_while(|line| line.split_whitespace().next() != Some(id));
        let (Some(line), Some(features)) = (lines.next(), lines.next()) else {
            anyhow::bail!("{id} is not listed:\n{listed}");
        };
        for key in ["name", "driver"] {
            let told = device[key].as_str().unwrap_or_default();
            ensure!(line.contains(told), "its {key} `{told}` is missing: {line}");
        }
        for part in wanted_features(device) {
            let mut parts = features.split("; ").map(str::trim);
            ensure!(
                parts.any(|found| found.starts_with(&part)),
                "`{part}` is missing: {features}"
            );
        }
    }
    Ok(())
}

fn has_all_fields(device: &Value) -> Result<()> {
    for key in ["name", "vendor", "driver"] {
        ensure!(device[key].as_str().is_some_and(|text| !text.is_empty()), "no {key}");
    }
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let (total, free) = (number(&device["total_bytes"]), number(&device["free_bytes"]));
    ensure!(0 < free && free <= total, "{free} of {total} bytes are free");
    for key in [
        "num_multiprocessors",
        "max_threads_per_block",
        "max_shared_bytes_per_block",
    ] {
        ensure!(number(&device[key]) > 0, "no {key}");
    }
    let opencl = &device["opencl"];
    let largest = number(&opencl["max_allocation_bytes"]);
    ensure!(0 < largest && largest <= total, "{largest} bytes for a buffer");
    for key in ["fp64", "fp16", "int64_atomics", "sees_host_writes"] {
        ensure!(opencl[key].is_boolean(), "no {key}");
    }
    let is_list =
        |key: &str, is_right: fn(&Value) -> bool| opencl[key].as_array().is_some_and(|l| l.iter().all(is_right));
    let is_size = |value: &Value| value.as_u64().is_some_and(|size| size > 0);
    ensure!(is_list("sub_group_sizes", is_size), "no sizes of sub-groups");
    ensure!(is_list("lacks", Value::is_string), "no list of what is lacking");
    ensure!(
        opencl
            .get("il_version")
            .is_some_and(|il| il.is_null() || il.is_string()),
        "no intermediate language"
    );
    for (key, extension) in [("fp64", "cl_khr_fp64"), ("int64_atomics", "cl_khr_int64_base_atomics")] {
        let lacks = opencl["lacks"].as_array().into_iter().flatten().any(|l| l == extension);
        ensure!(opencl[key] == !lacks, "{key} and what is lacking do not agree");
    }
    Ok(())
}

/// How the parts of the text begin that the JSON calls for.
fn wanted_features(device: &Value) -> Vec<String> {
    let opencl = &device["opencl"];
    let mut wanted = vec![
        format!("vendor {}", device["vendor"].as_str().unwrap_or_default()),
        "buffers of up to ".to_owned(),
    ];
    for (key, text) in [("fp64", "fp64"), ("fp16", "fp16"), ("int64_atomics", "64-bit atomics")] {
        wanted.extend((opencl[key] == true).then(|| text.to_owned()));
    }
    // All sizes, or runs of them.
    let smallest = opencl["sub_group_sizes"].get(0);
    wanted.extend(smallest.map(|size| format!("sub-groups of {size}")));
    wanted.extend(opencl["il_version"].as_str().map(str::to_owned));
    let lacks: Vec<&str> = opencl["lacks"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    wanted.extend((!lacks.is_empty()).then(|| format!("lacks {}", lacks.join(", "))));
    wanted.extend((opencl["sees_host_writes"] == false).then(|| "stopped between launches".to_owned()));
    wanted
}
