//! `clCompileProgram` and `clLinkProgram`: programs in parts.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::binary::Binary;
use crate::context::{Context, check_same};
use crate::device;
use crate::executable::{self, Failure};
use crate::handles::{self, Handle, Object};
use crate::log;
use crate::options;
use crate::pointers::{Callback, In, ObjectFn, Text};
use crate::program::{self, Built, Origin, Program};
use crate::status::{Outcome, Status};

entry_points! {
    status clCompileProgram
        (program: Handle, count: u32, devices: In<Handle>, options: Text, num_headers: u32, headers: In<Handle>,
         names: In<Text>, notify: Option<ObjectFn>, data: usize) => compile;
    object clLinkProgram
        (context: Handle, count: u32, devices: In<Handle>, options: Text, num_programs: u32, programs: In<Handle>,
         notify: Option<ObjectFn>, data: usize) => link;
}

#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn compile(
    program: Handle,
    count: u32,
    devices: In<Handle>,
    options: Text,
    num_headers: u32,
    headers: In<Handle>,
    names: In<Text>,
    notify: Option<ObjectFn>,
    data: usize,
) -> Outcome {
    let program = handles::get::<Program>(program)?;
    device::check_list(count, devices)?;
    let has_none = num_headers == 0;
    if (notify.is_none() && data != 0) || has_none != headers.is_null() || has_none != names.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    program.check_no_kernels()?;
    let Origin::Source(source) = &program.origin else {
        return Err(Status::INVALID_OPERATION);
    };
    let mut included = Vec::new();
    for index in 0..num_headers as usize {
        let header = handles::get::<Program>(headers.nth(index)?)?;
        check_same(&program.context, &header.context)?;
        let Origin::Source(text) = &header.origin else {
            return Err(Status::INVALID_OPERATION);
        };
        included.push((PathBuf::from(names.nth(index)?.get()?), text.clone()));
    }
    let options = options.or_empty()?;
    let outcome = program.finish(options.clone(), compile_source(source, &options, &included));
    if let Some(function) = notify {
        Callback { function, data }.call(program.handle().0);
    }
    outcome
}

fn compile_source(source: &str, options: &str, headers: &[(PathBuf, String)]) -> Result<Built, Failure> {
    const FAILURE: Status = Status::COMPILE_PROGRAM_FAILURE;
    let options = program::read_options(options, Status::INVALID_COMPILER_OPTIONS)?;
    if let Some((name, _)) = headers.iter().find(|(name, _)| !stays_in_its_folder(name)) {
        let reason = "is no name below a folder; give it a name without `..` and without a `/` in front";
        return Err((FAILURE, format!("error: header `{}` {reason}\n", name.display())));
    }
    let toolchain = executable::toolchain(Status::COMPILER_NOT_AVAILABLE)?;
    let compiled = toolchain.compile(source, &options, headers);
    let (bitcode, log) = compiled.map_err(|error| (FAILURE, error.build_log()))?;
    Ok(Built {
        binary: Arc::new(Binary::Object(bitcode)),
        executable: None,
        log,
    })
}

fn stays_in_its_folder(name: &Path) -> bool {
    let mut parts = name.components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// Without a function to notify, who asked has no program to ask for the log if it fails: standard error has it.
#[allow(clippy::too_many_arguments, reason = "OpenCL's signature")]
fn link(
    context: Handle,
    count: u32,
    devices: In<Handle>,
    options: Text,
    num_programs: u32,
    programs: In<Handle>,
    notify: Option<ObjectFn>,
    data: usize,
) -> Outcome<Handle> {
    let context = handles::get::<Context>(context)?;
    device::check_list(count, devices)?;
    if num_programs == 0 || programs.is_null() || (notify.is_none() && data != 0) {
        return Err(Status::INVALID_VALUE);
    }
    let parts = handles::get_all::<Program>(&programs.all(num_programs as usize)?)?;
    let mut objects = Vec::new();
    for part in &parts {
        check_same(&context, &part.context)?;
        let binary = part.binary().filter(|binary| binary.bitcode().is_some());
        objects.push(binary.ok_or(Status::INVALID_OPERATION)?);
    }
    let options = options.or_empty()?;
    let result = link_objects(&objects, &options);
    let program = Program::add(context, Origin::Linked);
    match (program.finish(options, result), notify) {
        (Ok(()), None) => {}
        (Err(status), None) => {
            log::failure(&format!("clLinkProgram: {}", program.log().trim_end()));
            handles::release::<Program>(program.handle())?;
            return Err(status);
        }
        // The program says what became of it.
        (_, Some(function)) => Callback { function, data }.call(program.handle().0),
    }
    Ok(program.handle())
}

fn link_objects(objects: &[Arc<Binary>], options: &str) -> Result<Built, Failure> {
    const FAILURE: Status = Status::LINK_PROGRAM_FAILURE;
    let options =
        options::read_for_linking(options).map_err(|bad| (Status::INVALID_LINKER_OPTIONS, bad.build_log()))?;
    let toolchain = executable::toolchain(Status::LINKER_NOT_AVAILABLE)?;
    let objects: Vec<&[u8]> = objects.iter().filter_map(|binary| binary.bitcode()).collect();
    if options.is_library {
        let (bitcode, log) = toolchain
            .link(&objects, &options.arguments)
            .map_err(|error| (FAILURE, error.build_log()))?;
        return Ok(Built {
            binary: Arc::new(Binary::Library(bitcode)),
            executable: None,
            log,
        });
    }
    let compiled = toolchain
        .link_all(&objects, &options.arguments)
        .map_err(|error| (FAILURE, error.build_log()))?;
    program::built(executable::image(&compiled, FAILURE)?, compiled.log, FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_stay_in_their_folder() {
        for name in ["a.h", "a/b.h", "./a.h", "a b"] {
            assert!(stays_in_its_folder(Path::new(name)), "{name}");
        }
        for name in ["", "/a.h", "../a.h", "a/../../b.h", "a/.."] {
            assert!(!stays_in_its_folder(Path::new(name)), "{name}");
        }
    }
}
