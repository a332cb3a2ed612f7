//! Compiles a source in the portable language: `spirv FILE.cl FOLDER [OPTIONS]` writes `FOLDER/KERNEL.spv` for each
//! kernel, and prints what it takes.

use std::io::Write as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, folder, options @ ..] = arguments.as_slice() else {
        return Err("expected FILE.cl FOLDER [OPTIONS]".into());
    };
    let source = std::fs::read_to_string(file)?;
    for kernel in lgp_portable::compile(&source, &options.join(" "))? {
        let mut spv = std::fs::File::create(format!("{folder}/{}.spv", kernel.name))?;
        for word in &kernel.words {
            spv.write_all(&word.to_le_bytes())?;
        }
        println!("{}: {:?} {:?} {:?}", kernel.name, kernel.group, kernel.needs, kernel.parameters);
    }
    Ok(())
}
