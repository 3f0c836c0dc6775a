//! Formats of `printf`, with arguments that come from a device: one conversion at a time is given to the C library.
//! Besides what CUDA has there are vectors (OpenCL C 1.2, 6.12.13.2): `%v4hld`.

use super::c_library;

/// Strings in device memory.
pub trait DeviceStrings {
    /// The string at `addr` without its NUL, or `None` if no memory is there.
    fn string(&self, addr: u64) -> Option<Vec<u8>>;
}

/// One conversion specification, ready for the C library.
#[derive(Debug, PartialEq, Eq)]
struct Conversion {
    /// Flags, width and precision, with the percent sign.
    head: Vec<u8>,
    /// The letter.
    letter: u8,
    /// Elements of a vector; `None` for a scalar.
    elements: Option<usize>,
    /// Bytes of an integer, or of a vector's element, that count: 4, or 8 with `l`, `ll`, `j`, `z`, `t`, 2 with `h`, 1
    /// with `hh`.
    element_bytes: usize,
    /// Length of the specification.
    length: usize,
}

/// More digits of width or precision than anybody needs.
const MAX_DIGITS: usize = 4;

impl Conversion {
    /// Reads the specification that `text` starts with, `%` included; `None` if it is none that devices know.
    fn parse(text: &[u8]) -> Option<Self> {
        let mut at = 1;
        let skip = |at: &mut usize, accepts: fn(u8) -> bool, most: usize| {
            let num = text[*at..].iter().take(most).take_while(|&&b| accepts(b)).count();
            *at += num;
        };
        skip(&mut at, |b| b"-+ #0".contains(&b), 5);
        skip(&mut at, |b| b.is_ascii_digit(), MAX_DIGITS);
        if text.get(at) == Some(&b'.') {
            at += 1;
            skip(&mut at, |b| b.is_ascii_digit(), MAX_DIGITS);
        }
        let head = text[..at].to_vec();
        let elements = Self::elements(&text[at..]);
        at += elements.map_or(0, |num| if num < 10 { 2 } else { 3 });
        let lengths = at;
        skip(&mut at, |b| b"hljztL".contains(&b), 2);
        let letter = *text.get(at)?;
        b"diouxXcsfFeEgGaAp".contains(&letter).then_some(Self {
            head,
            letter,
            elements,
            element_bytes: match &text[lengths..at] {
                b"hh" => 1,
                b"h" => 2,
                b"" | b"hl" => 4,
                _ => 8,
            },
            length: at + 1,
        })
    }

    /// Elements of the vector that `text` starts with.
    fn elements(text: &[u8]) -> Option<usize> {
        let text = text.strip_prefix(b"v")?;
        let sizes: [(&[u8], usize); 5] = [(b"2", 2), (b"3", 3), (b"4", 4), (b"8", 8), (b"16", 16)];
        let size = sizes.iter().find(|(digits, _)| text.starts_with(digits));
        size.map(|(_, num)| *num)
    }
}

/// Arguments as they lie in memory, each with its natural alignment.
struct Arguments<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Arguments<'_> {
    /// The next argument of 4 or 8 bytes; 0 beyond the end.
    fn take(&mut self, size: usize) -> u64 {
        let start = self.at.next_multiple_of(size);
        self.at = start + size;
        self.value(start, size)
    }

    /// The elements of the next vector, each of 1, 2, 4 or 8 bytes. One of three is as large as one of four.
    fn take_vector(&mut self, num: usize, size: usize) -> impl Iterator<Item = u64> + '_ {
        let vector = num.next_power_of_two() * size;
        let start = self.at.next_multiple_of(vector);
        self.at = start + vector;
        (0..num).map(move |i| self.value(start + i * size, size))
    }

    fn value(&self, start: usize, size: usize) -> u64 {
        let mut value = [0; 8];
        if let Some(found) = self.bytes.get(start..start + size) {
            value[..size].copy_from_slice(found);
        }
        u64::from_le_bytes(value)
    }
}

/// Appends `format` with its conversions replaced. What is no conversion that devices know stays as it is.
pub fn append(text: &mut Vec<u8>, format: &[u8], arguments: &[u8], device: &impl DeviceStrings) {
    let mut arguments = Arguments {
        bytes: arguments,
        at: 0,
    };
    let mut rest = format;
    while let Some(start) = rest.iter().position(|&b| b == b'%') {
        let (before, from) = rest.split_at(start);
        text.extend_from_slice(before);
        if from.get(1) == Some(&b'%') {
            text.push(b'%');
            rest = &from[2..];
            continue;
        }
        let Some(conversion) = Conversion::parse(from) else {
            text.push(b'%');
            rest = &from[1..];
            continue;
        };
        convert(text, &conversion, &mut arguments, device);
        rest = &from[conversion.length..];
    }
    text.extend_from_slice(rest);
}

fn convert(text: &mut Vec<u8>, conversion: &Conversion, arguments: &mut Arguments<'_>, device: &impl DeviceStrings) {
    let head = &conversion.head;
    if let Some(num) = conversion.elements {
        for (i, bits) in arguments.take_vector(num, conversion.element_bytes).enumerate() {
            if i > 0 {
                text.push(b',');
            }
            convert_element(text, conversion, bits);
        }
        return;
    }
    match conversion.letter {
        b's' => {
            let addr = arguments.take(8);
            let string = device.string(addr).unwrap_or_else(|| b"(null)".to_vec());
            c_library::format_string(text, head, &string);
        }
        b'c' => c_library::format_character(text, head, arguments.take(4) as u8),
        b'p' => {
            let addr = arguments.take(8);
            c_library::format_pointer(text, head, addr);
        }
        letter @ (b'd' | b'i' | b'o' | b'u' | b'x' | b'X') => {
            // Whatever is shorter lies there as an `int`, and the C library gets it as a `long long`.
            let value = arguments.take(conversion.element_bytes.max(4));
            format_integer(text, head, letter, value, conversion.element_bytes);
        }
        letter => c_library::format_double(text, head, letter, f64::from_bits(arguments.take(8))),
    }
}

/// Of an integer's bits, those of its first `size` bytes count.
fn format_integer(text: &mut Vec<u8>, head: &[u8], letter: u8, bits: u64, size: usize) {
    let unused = 64 - 8 * size as u32;
    let bits = bits << unused;
    let value = match letter {
        b'd' | b'i' => (bits as i64 >> unused) as u64,
        _ => bits >> unused,
    };
    c_library::format_integer(text, head, letter, value);
}

/// An element of a vector. Those of floating point are `float` or `double`; strings and the like are none.
fn convert_element(text: &mut Vec<u8>, conversion: &Conversion, bits: u64) {
    let (head, size) = (&conversion.head, conversion.element_bytes);
    match (conversion.letter, size) {
        (letter @ (b'd' | b'i' | b'o' | b'u' | b'x' | b'X'), _) => format_integer(text, head, letter, bits, size),
        (b'c' | b's' | b'p', _) | (_, 1 | 2) => text.push(b'?'),
        (letter, 4) => c_library::format_double(text, head, letter, f32::from_bits(bits as u32).into()),
        (letter, _) => c_library::format_double(text, head, letter, f64::from_bits(bits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Strings;
    impl DeviceStrings for Strings {
        fn string(&self, addr: u64) -> Option<Vec<u8>> {
            (addr == 5).then(|| b"block".to_vec())
        }
    }

    fn printed(format: &str, arguments: &[u8]) -> String {
        let mut text = Vec::new();
        append(&mut text, format.as_bytes(), arguments, &Strings);
        String::from_utf8(text).unwrap_or_default()
    }

    #[test]
    fn arguments_have_their_natural_alignment() {
        let mut bytes = Vec::new();
        bytes.extend((-3_i32).to_le_bytes());
        bytes.extend([0xee; 4]);
        bytes.extend(5_u64.to_le_bytes());
        bytes.extend(1.5_f64.to_le_bytes());
        bytes.extend((-7_i64).to_le_bytes());
        bytes.extend(120_u32.to_le_bytes());
        bytes.extend(u32::MAX.to_le_bytes());
        let text = printed("%d of %s: %f %lld %c %u %%\n", &bytes);
        assert_eq!(text, "-3 of block: 1.500000 -7 x 4294967295 %\n");
    }

    #[test]
    fn flags_width_and_precision_count() {
        let mut bytes = Vec::new();
        bytes.extend(42_u32.to_le_bytes());
        bytes.extend(42_u32.to_le_bytes());
        bytes.extend(2.0_f64.to_le_bytes());
        bytes.extend(5_u64.to_le_bytes());
        assert_eq!(
            printed("[%06d|%-#6x|%.2e|%7.3s]", &bytes),
            "[000042|0x2a  |2.00e+00|    blo]"
        );
        assert_eq!(printed("%hhd %5hd", &[0xfe, 1, 0, 0, 8]), "-2     0");
        assert_eq!(printed("%hu %hx", &[1, 2, 3, 4, 5, 6, 7, 8]), "513 605");
        assert_eq!(printed("%p", &16_u64.to_le_bytes()), "0x10");
    }

    #[test]
    fn vectors_are_printed_by_element() {
        let bytes: Vec<u8> = [1.5_f32, -2.0, 0.25, 9.0]
            .iter()
            .flat_map(|f| f.to_le_bytes())
            .collect();
        assert_eq!(printed("%v4hlf", &bytes), "1.500000,-2.000000,0.250000,9.000000");
        assert_eq!(printed("%5.1v3hlf|", &bytes), "  1.5, -2.0,  0.2|");
        let bytes = [1, 0, 0, 0, 0xff, 0xfe, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 7, 0];
        assert_eq!(printed("%d %v3hhd", &bytes), "1 -1,-2,3");
        assert_eq!(printed("%v2hx", &bytes), "1,0");
        assert_eq!(printed("%v16hhu", &bytes), "1,0,0,0,255,254,3,4,5,6,7,8,0,0,0,0");
        assert_eq!(
            printed("%v2ld", &[&[1; 8], &[0xff; 8][..]].concat()),
            "72340172838076673,-1"
        );
        assert_eq!(printed("%v2s %v5d", &bytes), "?,? %v5d");
    }

    #[test]
    fn what_is_no_conversion_stays() {
        assert_eq!(printed("100% %n %*d %", &[1; 16]), "100% %n %*d %");
        assert_eq!(printed("%s", &9_u64.to_le_bytes()), "(null)");
        assert_eq!(printed("%d %d", &[1, 0, 0, 0]), "1 0");
    }

    proptest::proptest! {
        #[test]
        fn any_format_and_any_arguments_give_some_text(format: Vec<u8>, arguments: Vec<u8>) {
            append(&mut Vec::new(), &format, &arguments, &Strings);
        }

        #[test]
        fn any_conversion_gives_some_text(format in "%[-+ #0]{0,3}[0-9]{0,6}(\\.[0-9]{0,6})?(v[0-9]{0,2})?[hljztL]{0,3}[a-zA-Z%*]", arguments: [u8; 16]) {
            append(&mut Vec::new(), format.as_bytes(), &arguments, &Strings);
        }
    }
}
