//! The application's build options: read as the specification has them, passed on to the compiler where they are known.

use thiserror::Error;

/// A build option that there is not, or that lacks its value. The fault lies with the application.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("unknown or incomplete build option `{0}`")]
pub struct BadOption(pub String);

impl BadOption {
    /// What the application finds in its build log.
    pub fn build_log(&self) -> String {
        format!("error: {self}\n")
    }
}

/// Options that the compiler takes as they are.
const PASSED_ON: &[&str] = &[
    "-cl-single-precision-constant",
    "-cl-denorms-are-zero",
    "-cl-fp32-correctly-rounded-divide-sqrt",
    "-cl-mad-enable",
    "-cl-no-signed-zeros",
    "-cl-unsafe-math-optimizations",
    "-cl-finite-math-only",
    "-cl-fast-relaxed-math",
    "-cl-std=CL1.0",
    "-cl-std=CL1.1",
    "-cl-std=CL1.2",
    "-w",
    "-Werror",
];

/// Options without effect: names and types of arguments are always kept, only optimised code can be probed, and strict
/// aliasing is of OpenCL 1.0 and always assumed.
const WITHOUT_EFFECT: &[&str] = &["-cl-kernel-arg-info", "-cl-opt-disable", "-cl-strict-aliasing", "-g"];

/// The compiler's arguments for `options`.
///
/// # Errors
/// If there is an option that OpenCL does not have, or one without its value.
pub fn read(options: &str) -> Result<Vec<String>, BadOption> {
    let mut words = split(options)?.into_iter();
    let mut read = Vec::new();
    while let Some(word) = words.next() {
        let known = |list: &[&str]| list.contains(&word.as_str());
        if let Some(flag @ ("-D" | "-I")) = word.get(..2) {
            let value = match word.get(2..) {
                Some("") | None => words.next(),
                Some(value) => Some(value.to_owned()),
            };
            let value = value.ok_or_else(|| BadOption(word.clone()))?;
            read.push(format!("{flag}{value}"));
        } else if known(PASSED_ON) {
            read.push(word);
        } else if !known(WITHOUT_EFFECT) {
            return Err(BadOption(word));
        }
    }
    Ok(read)
}

/// What the linker is told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LinkOptions {
    /// Whether to make a library.
    pub is_library: bool,
    /// The compiler's arguments.
    pub arguments: Vec<String>,
}

/// Reads options for `clLinkProgram`.
///
/// # Errors
/// If there is an option that it does not have.
pub fn read_for_linking(options: &str) -> Result<LinkOptions, BadOption> {
    const OF_MATHS: &[&str] = &[
        "-cl-denorms-are-zero",
        "-cl-no-signed-zeros",
        "-cl-unsafe-math-optimizations",
        "-cl-finite-math-only",
        "-cl-fast-relaxed-math",
    ];
    let mut read = LinkOptions::default();
    for word in split(options)? {
        match &*word {
            "-create-library" => read.is_library = true,
            // Whoever links with a library may say how, always.
            "-enable-link-options" => {}
            // So the specification has it here.
            "-cl-no-signed-zeroes" => read.arguments.push("-cl-no-signed-zeros".to_owned()),
            known if OF_MATHS.contains(&known) => read.arguments.push(word),
            _ => return Err(BadOption(word)),
        }
    }
    Ok(read)
}

/// Words between blanks; quotes keep blanks, a backslash the next character.
fn split(options: &str) -> Result<Vec<String>, BadOption> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = options.chars();
    while let Some(c) = characters.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => match characters.next() {
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err(BadOption("\\".to_owned())),
            },
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (_, Some(open)) if c == open => quote = None,
            (_, None) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if quote.is_some() {
        return Err(BadOption(options.to_owned()));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_options_are_passed_on() {
        let read = read("-DA=1  -D B -I include -I/usr/x -cl-mad-enable -g -cl-strict-aliasing -cl-std=CL1.1").unwrap();
        assert_eq!(
            read,
            [
                "-DA=1",
                "-DB",
                "-Iinclude",
                "-I/usr/x",
                "-cl-mad-enable",
                "-cl-std=CL1.1"
            ]
        );
    }

    #[test]
    fn the_linker_has_options_of_its_own() {
        let read = read_for_linking("-create-library -enable-link-options -cl-no-signed-zeroes").unwrap();
        assert!(read.is_library);
        assert_eq!(read.arguments, ["-cl-no-signed-zeros"]);
        assert_eq!(read_for_linking(""), Ok(LinkOptions::default()));
        for bad in ["-DA", "-cl-std=CL1.1", "-cl-mad-enable"] {
            assert_eq!(read_for_linking(bad), Err(BadOption(bad.to_owned())));
        }
    }

    #[test]
    fn quotes_keep_blanks() {
        let read = read(r#"-D "T=unsigned int" -DS=\"x\" '-DU=a b'"#).unwrap();
        assert_eq!(read, ["-DT=unsigned int", "-DS=\"x\"", "-DU=a b"]);
    }

    #[test]
    fn unknown_options_are_named() {
        for (options, bad) in [
            ("-O2", "-O2"),
            ("-DA -fplugin=x.so", "-fplugin=x.so"),
            ("-D", "-D"),
            ("-cl-std=CL3.0", "-cl-std=CL3.0"),
            ("x.o", "x.o"),
            ("\"open", "\"open"),
        ] {
            assert_eq!(read(options), Err(BadOption(bad.to_owned())), "{options}");
        }
    }
}
