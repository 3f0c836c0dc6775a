//! Strips the released shared object: LLVM's symbol table is a third of it and nobody debugs LLVM in here.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("PROFILE").as_deref() == Ok("release") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--strip-all");
    }
}
