//! Copies of rows and of stacks of rows, in memory and in arrays.

use crate::box_transfer;
use crate::copy_params::{Copy2D, Copy3D};
use crate::graph::operation::Operation;
use crate::guard::Current;
use crate::handles::Handle;
use crate::pointers::In;
use crate::result::Outcome;
use crate::transfer::{self, Mode};

entry_points! {
    context cuMemcpy2D_v2 "cuMemcpy2D" 3020 (copy: In<Copy2D>) => copy_2d, cuMemcpy2D_v2_ptds 7000;
    context cuMemcpy2DUnaligned_v2 "cuMemcpy2DUnaligned" 3020
        (copy: In<Copy2D>) => copy_2d, cuMemcpy2DUnaligned_v2_ptds 7000;
    context cuMemcpy2DAsync_v2 "cuMemcpy2DAsync" 3020
        (copy: In<Copy2D>, stream: Handle) => copy_2d_async, cuMemcpy2DAsync_v2_ptsz 7000;
    context cuMemcpy3D_v2 "cuMemcpy3D" 3020 (copy: In<Copy3D>) => copy_3d, cuMemcpy3D_v2_ptds 7000;
    context cuMemcpy3DAsync_v2 "cuMemcpy3DAsync" 3020
        (copy: In<Copy3D>, stream: Handle) => copy_3d_async, cuMemcpy3DAsync_v2_ptsz 7000;
}

fn run(current: &Current, copy: &Copy3D, stream: Handle, mode: Mode) -> Outcome {
    let stream = current.stream(stream)?;
    if copy.touches_arrays() {
        return box_transfer::run(current, &copy.boxes()?, stream, mode);
    }
    let captured = current.session.captures.record(&current.session.graphs, stream, || {
        copy.transfers().try_for_each(|transfer| transfer.map(|_| ()))?;
        Ok(Operation::Copy(Box::new(*copy)))
    });
    if let Some(captured) = captured {
        return captured;
    }
    copy.transfers()
        .try_for_each(|transfer| transfer::run(current, transfer?, stream, mode))
}

fn run_2d(current: &Current, copy: &Copy2D, stream: Handle, mode: Mode) -> Outcome {
    if copy.touches_arrays() {
        return box_transfer::run(current, &copy.boxes()?, current.stream(stream)?, mode);
    }
    run(current, &Copy3D::of(&copy.transfer()?), stream, mode)
}

fn copy_2d(current: Current, copy: In<Copy2D>) -> Outcome {
    run_2d(&current, &copy.get()?, Handle::NULL, Mode::Sync)
}

fn copy_2d_async(current: Current, copy: In<Copy2D>, stream: Handle) -> Outcome {
    run_2d(&current, &copy.get()?, stream, Mode::Async)
}

fn copy_3d(current: Current, copy: In<Copy3D>) -> Outcome {
    run(&current, &copy.get()?, Handle::NULL, Mode::Sync)
}

fn copy_3d_async(current: Current, copy: In<Copy3D>, stream: Handle) -> Outcome {
    run(&current, &copy.get()?, stream, Mode::Async)
}
