//! What can be loaded: PTX text, cubins and fat binaries with cubins for this device.

use std::ffi::{CStr, CString};

use hetckpt_fatbin::decompress::{payload, ptx};
use hetckpt_fatbin::entry::{Kind, entries};
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

/// Compute capability, times ten plus minor.
const CAPABILITY: u32 = 90;
const ELF_MAGIC: &[u8] = b"\x7fELF";
const FATBIN_MAGIC: u32 = 0xba55_ed50;
/// `EIATTR_KPARAM_INFO` of a cubin's `.nv.info` sections, in the format with a size.
const PARAM_INFO: [u8; 2] = [4, 0x17];
/// Image that is not read beyond this.
const MAX_BYTES: usize = 1 << 30;

/// A kernel: its name, offset and size of each parameter.
pub struct Kernel {
    pub name: CString,
    pub params: Vec<(usize, usize)>,
}

/// A variable with its initial value; what is missing of that is 0.
pub struct Variable {
    pub name: String,
    pub size: u64,
    pub init: Vec<u8>,
}

/// What an image defines.
#[derive(Default)]
pub struct Contents {
    pub kernels: Vec<Kernel>,
    pub variables: Vec<Variable>,
    /// Its kernels print.
    pub prints: bool,
}

/// The image at a pointer of a `cuModuleLoadData`, as long as it says that it is.
///
/// # Safety
/// It is what the API asks for: an image of a kind that the driver takes.
pub unsafe fn bytes_at<'a>(image: *const u8) -> &'a [u8] {
    let word = |at: usize, size: usize| {
        let mut bytes = [0; 8];
        for (byte, offset) in bytes.iter_mut().zip(at..at + size) {
            // SAFETY: each kind of image has as long a header.
            *byte = unsafe { image.wrapping_add(offset).read() };
        }
        u64::from_le_bytes(bytes) as usize
    };
    let length = if word(0, 4) == FATBIN_MAGIC as usize {
        word(6, 2) + word(8, 8)
    } else if word(0, 4) == u32::from_le_bytes([ELF_MAGIC[0], ELF_MAGIC[1], ELF_MAGIC[2], ELF_MAGIC[3]]) as usize {
        // Section headers, then program headers, come last.
        let (sections, segments) = (
            word(40, 8) + word(58, 2) * word(60, 2),
            word(32, 8) + word(54, 2) * word(56, 2),
        );
        sections.max(segments)
    } else {
        // SAFETY: text ends with 0.
        unsafe { CStr::from_ptr(image.cast()) }.count_bytes()
    };
    // SAFETY: as long as its header says.
    unsafe { std::slice::from_raw_parts(image, length.min(MAX_BYTES)) }
}

/// What an image defines; `None` if there is nothing in it for this device.
pub fn contents(image: &[u8]) -> Option<Contents> {
    if image.starts_with(ELF_MAGIC) {
        return of_cubin(image);
    }
    if !image.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
        return std::str::from_utf8(image).ok().map(of_ptx);
    }
    let entries = entries(image).ok()?;
    let fits = |arch: u32| arch / 10 == CAPABILITY / 10 && arch <= CAPABILITY;
    let cubins = entries.iter().filter(|e| e.kind == Kind::Cubin && fits(e.arch));
    if let Some(cubin) = cubins.max_by_key(|e| e.arch) {
        return of_cubin(&payload(cubin).ok()?);
    }
    let texts = entries.iter().filter(|e| e.kind == Kind::Ptx && e.arch <= CAPABILITY);
    let newest = texts.max_by_key(|e| e.arch)?;
    Some(of_ptx(&ptx(newest).ok()?))
}

fn of_cubin(image: &[u8]) -> Option<Contents> {
    let file = ElfFile64::<object::Endianness>::parse(image).ok()?;
    let mut contents = Contents::default();
    for section in file.sections() {
        let Some(name) = section.name().ok().and_then(|name| name.strip_prefix(".text.")) else {
            continue;
        };
        // Functions that are no kernels have no such section with parameters.
        let info = file.section_by_name(&format!(".nv.info.{name}"));
        let Some(info) = info.and_then(|info| info.data().ok()) else {
            continue;
        };
        let name = CString::new(name).ok()?;
        contents.kernels.push(Kernel {
            name,
            params: params(info),
        });
    }
    contents.prints = file.symbols().any(|s| s.is_undefined() && s.name() == Ok("vprintf"));
    for symbol in file.symbols().filter(|s| s.kind() == SymbolKind::Data && s.size() > 0) {
        let section = symbol
            .section_index()
            .and_then(|index| file.section_by_index(index).ok());
        let from = usize::try_from(symbol.address()).unwrap_or(0);
        let init = section
            .and_then(|section| section.data().ok())
            .and_then(|data| data.get(from..));
        let init = init.map(|data| data[..data.len().min(symbol.size() as usize)].to_vec());
        contents.variables.push(Variable {
            name: symbol.name().unwrap_or_default().to_owned(),
            size: symbol.size(),
            init: init.unwrap_or_default(),
        });
    }
    Some(contents)
}

/// Parameters from a `.nv.info` section: entries of a format, an attribute, and a value or a size with that many bytes.
fn params(mut info: &[u8]) -> Vec<(usize, usize)> {
    let mut params = Vec::new();
    while let Some((head, rest)) = info.split_first_chunk::<4>() {
        let size = if head[0] == PARAM_INFO[0] {
            usize::from(u16::from_le_bytes([head[2], head[3]]))
        } else {
            0
        };
        let (value, rest) = rest.split_at(size.min(rest.len()));
        if head[..2] == PARAM_INFO && value.len() == 12 {
            let ordinal = usize::from(u16::from_le_bytes([value[4], value[5]]));
            let offset = usize::from(u16::from_le_bytes([value[6], value[7]]));
            // The upper 14 bits of the last word.
            let bytes = u32::from_le_bytes([value[8], value[9], value[10], value[11]]) >> 18;
            params.push((ordinal, (offset, bytes as usize)));
        }
        info = rest;
    }
    params.sort_unstable();
    params.into_iter().map(|(_, param)| param).collect()
}

/// Kernels and variables of PTX, by their declarations.
fn of_ptx(text: &str) -> Contents {
    let mut contents = Contents::default();
    for part in text.split(".entry").skip(1) {
        let (name, rest) = part
            .trim_start()
            .split_once(|c: char| c == '(' || c.is_whitespace())
            .unwrap_or((part, ""));
        let list = rest.split(')').next().unwrap_or_default();
        let mut end: usize = 0;
        let params = list.split(".param").skip(1).map(|param| {
            let size = size_of(param);
            let offset = end.next_multiple_of(size.clamp(1, 8));
            end = offset + size;
            (offset, size)
        });
        let params = params.collect();
        if let Ok(name) = CString::new(name) {
            contents.kernels.push(Kernel { name, params });
        }
    }
    contents
}

/// Size of a declaration such as `.u64 x` or `.align 8 .b8 x[24]`, bytes.
fn size_of(declaration: &str) -> usize {
    let kind = declaration
        .split_whitespace()
        .find(|word| word.starts_with('.') && word.ends_with(|c: char| c.is_ascii_digit()));
    let bits: usize = kind
        .and_then(|kind| kind.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok())
        .unwrap_or(64);
    let count = declaration
        .split_once('[')
        .and_then(|(_, rest)| rest.split(']').next()?.trim().parse::<usize>().ok());
    bits / 8 * count.unwrap_or(1)
}
