//! Every kernel as the compiler that users of old cards have makes it: Mesa's, through OpenCL and through Vulkan. No card
//! is needed. And the table of what owners of cards have measured.

mod code;
mod compiler;
mod estimate;
mod figures;
mod install;
mod instructions;
pub(crate) mod measured;
mod opencl;
mod page;
mod rules;
mod vulkan;

use crate::cmd;
use crate::kernels::Kernels;
use crate::report::{Outcome, Skip};
use anyhow::{Context, Result, bail};
use compiler::Compiler;
use figures::Way;
use page::Answers;
use rules::Violation;

const PAGE: &str = "docs/kernels.md";
/// The page is generated between these lines, and written by hand elsewhere.
const MARKS: [&str; 2] = ["<!-- made by cargo xtask cards -->\n", "<!-- end -->\n"];
/// Rules that kernels of the fixture break, by OpenCL and by Vulkan.
const FIXTURE: &[(&str, [&[&str]; 2])] = &[
    ("fits", [&[], &[]]),
    ("spills", [&["scratch"], &["scratch"]]),
    ("narrow", [&["neighbouring reads"], &["neighbouring reads"]]),
    // The portable language refuses so much local memory by itself.
    ("greedy", [&["local memory", "work-items", "waves"], &["does not compile"]]),
    ("broken", [&["does not compile"], &["does not compile"]]),
];

/// Makes the page anew. A kernel that breaks a rule is an error.
pub(crate) fn run() -> Result<()> {
    let compiler = Compiler::new()?;
    let kernels = Kernels::of_engine()?;
    let (answers, violations) = ask(&compiler, &kernels)?;
    let path = cmd::root().join(PAGE);
    let text = std::fs::read_to_string(&path).context(PAGE)?;
    let made = page::made(upstream(&compiler.version), &answers);
    std::fs::write(&path, with(PAGE, &text, MARKS, &made)?)?;
    println!("{PAGE} is what Mesa {} makes of the kernels", compiler.version);
    let failed = rules::judge(&violations, rules::ACCEPTED);
    failed.iter().for_each(|line| eprintln!("{line}"));
    if !failed.is_empty() {
        bail!("{} violations in what kernels take", failed.len());
    }
    Ok(())
}

/// The check as a suite of tests: of a fixture that breaks each rule, then of the engine's kernels and the page.
pub(crate) fn suite() -> Result<Outcome> {
    let compiler = match Compiler::new() {
        Ok(compiler) => compiler,
        Err(error) => return Ok(Outcome::skip(Skip::new("mesa", format!("{error:#}")))),
    };
    let fixture = Kernels::of_fixture("cards")?;
    let mut outcome = fixture_outcome(&ask(&compiler, &fixture)?.1);
    let kernels = Kernels::of_engine()?;
    let (answers, violations) = ask(&compiler, &kernels)?;
    let failed = rules::judge(&violations, rules::ACCEPTED);
    let passed = Way::ALL.len() * kernels.variants.len();
    outcome.and(Outcome { passed, failed, ..Outcome::default() });
    outcome.and(drift(&compiler, &answers)?);
    Ok(outcome)
}

/// Whether the page is what the kernels make it. Another version of the compiler would make another one.
fn drift(compiler: &Compiler, answers: &Answers) -> Result<Outcome> {
    let text = std::fs::read_to_string(cmd::root().join(PAGE)).context(PAGE)?;
    let version = upstream(&compiler.version);
    if !text.contains(&format!("\nMesa {version}.\n")) {
        let reason = format!("{PAGE} is of another Mesa than {version}");
        return Ok(Outcome::skip(Skip::new("mesa", reason)));
    }
    let same = text == with(PAGE, &text, MARKS, &page::made(version, answers))?;
    let differs = || Outcome::fail(format!("{PAGE} is not what Mesa says: cargo xtask cards"));
    Ok(if same { Outcome::pass() } else { differs() })
}

fn ask<'a>(compiler: &Compiler, kernels: &'a Kernels) -> Result<(Answers<'a>, Vec<Violation>)> {
    let by_way = [compiler.ask(kernels, Way::OpenCl)?, compiler.ask(kernels, Way::Vulkan)?];
    let mut violations = Vec::new();
    for (way, answers) in Way::ALL.iter().zip(&by_way) {
        for (variant, answer) in kernels.variants.iter().zip(answers) {
            violations.extend(rules::violations(*way, variant, answer));
        }
    }
    Ok((Answers { variants: &kernels.variants, by_way }, violations))
}

/// Whether the fixture's kernels break the expected rules.
fn fixture_outcome(violations: &[Violation]) -> Outcome {
    let mut outcome = Outcome::default();
    for (name, wanted) in FIXTURE {
        for (way, wanted) in Way::ALL.iter().zip(wanted) {
            let own = violations.iter().filter(|of| of.name == *name && of.way == *way);
            let found: Vec<String> = own.map(Violation::text).collect();
            let agrees = found.iter().zip(*wanted).all(|(found, wanted)| found.contains(wanted));
            if found.len() == wanted.len() && agrees {
                outcome.passed += 1;
            } else {
                let failed =
                    format!("fixture {name} by {}: {found:?}, expected {wanted:?}", way.name());
                outcome.failed.push(failed);
            }
        }
    }
    outcome
}

/// The version without Debian's part.
fn upstream(version: &str) -> &str {
    version.split('-').next().unwrap_or(version)
}

/// A page with the part between its marks replaced.
fn with(page: &str, text: &str, marks: [&str; 2], made: &str) -> Result<String> {
    let [begin, end] = marks;
    let parts = text
        .split_once(begin)
        .and_then(|(head, rest)| rest.split_once(end).map(|(_, tail)| (head, tail)));
    let Some((head, tail)) = parts else { bail!("{page} lacks the lines {marks:?}") };
    Ok(format!("{head}{begin}{made}\n{end}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_generated_part_is_replaced() {
        let [begin, end] = MARKS;
        let with = |text: &str| with(PAGE, text, MARKS, "new\n");
        let made = with(&format!("head\n{begin}old\n{end}tail\n")).unwrap();
        assert_eq!(made, format!("head\n{begin}new\n\n{end}tail\n"));
        assert_eq!(with(&made).unwrap(), made);
        assert!(with("no marks").is_err());
        assert_eq!(upstream("25.0.7-2+deb13u1"), "25.0.7");
    }
}
