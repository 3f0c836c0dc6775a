//! A device for people.

use hetckpt_move::devices::unusable;
use hetckpt_report::quantity;
use hetckpt_ring::message::DeviceSummary;

/// Whose an OpenCL device is, what it has and what it lacks, in a line.
pub fn opencl_features(device: &DeviceSummary) -> Option<String> {
    let opencl = device.opencl.as_ref()?;
    let vendor = (!device.vendor.is_empty()).then(|| format!("vendor {}", device.vendor));
    let mut parts: Vec<String> = vendor.into_iter().collect();
    parts.push(format!(
        "buffers of up to {}",
        quantity::bytes(opencl.max_allocation_bytes)
    ));
    let features = [
        (opencl.fp64, "fp64"),
        (opencl.fp16, "fp16"),
        (opencl.int64_atomics, "64-bit atomics"),
    ];
    let present = features.into_iter().filter(|&(is_present, _)| is_present);
    parts.extend(present.map(|(_, name)| name.to_owned()));
    if !opencl.sub_group_sizes.is_empty() {
        parts.push(format!("sub-groups of {}", in_runs(&opencl.sub_group_sizes)));
    }
    parts.extend(opencl.il_version.clone());
    if !opencl.lacks.is_empty() {
        parts.push(format!("lacks {}", opencl.lacks.join(", ")));
    }
    if opencl.sees_host_writes == Some(false) {
        parts.push("stopped between launches of bounded length".to_owned());
    }
    if let Some(why) = unusable(device) {
        parts.push(format!("cannot be used: {why}"));
    }
    Some(parts.join("; "))
}

/// Numbers with what lies between two of them left out where it is all there: there are devices whose sub-groups may
/// have any size.
fn in_runs(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|&one, &next| one.checked_add(1) == Some(next));
    let texts = runs.map(|run| match run {
        [first, _, .., last] => format!("{first}-{last}"),
        few => few.iter().map(u64::to_string).collect::<Vec<_>>().join("/"),
    });
    texts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::in_runs;

    #[test]
    fn many_numbers_take_little_room() {
        let all: Vec<u64> = (1..4096).collect();
        assert_eq!(in_runs(&all), "1-4095");
        assert_eq!(in_runs(&[1, 2, 4, 8]), "1/2/4/8");
        assert_eq!(in_runs(&[2, 3, 4, 8, 16, 17]), "2-4/8/16/17");
        assert_eq!(in_runs(&[32]), "32");
    }
}
