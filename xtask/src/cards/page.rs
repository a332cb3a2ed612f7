//! The generated part of `docs/kernels.md`.

use super::estimate::{self, Class, Part, Range};
use super::figures::{Answer, Figures, Way};
use super::rules;
use crate::kernels::Variant;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What others have measured on these cards.
struct Others {
    kernels: &'static [&'static str],
    /// In a table.
    short: &'static str,
    on: &'static str,
    what: &'static str,
}

const OTHERS: &[Others] = &[
    Others {
        kernels: &["gemm"],
        short: "36 to 40 % of the peak",
        on: "llama.cpp (Vulkan), Qwen3-4B on an RX 480 and Llama-3.2-3B on an RX 580, in four bits",
        what: "prompts of 294 and 347 tokens/s: 2.4 and 2.2 TFLOP/s at two operations a weight, of 5.8 and 6.2 \
         ([llama.cpp#13324](https://github.com/ggml-org/llama.cpp/pull/13324), \
         [ai-benchmarks#20](https://github.com/geerlingguy/ai-benchmarks/issues/20))",
    },
    Others {
        kernels: &["gemv"],
        short: "37 to 56 % of memory",
        on: "llama.cpp (Vulkan), the same, on an RX 480",
        what: "answers of 37.8 tokens/s: 96 to 144 GB/s \
         ([llama.cpp#13324](https://github.com/ggml-org/llama.cpp/pull/13324))",
    },
    Others {
        kernels: &["conv", "winograd"],
        short: "25 to 31 % of the peak",
        on: "dlprimitives (OpenCL), RX 560, ResNet-50 in batches of 16",
        what: "204 ms: about 0.64 TFLOP/s, by the operations of plain convolutions \
         ([its table](https://github.com/artyom-beilis/dlprimitives))",
    },
];

/// What all ways say of all variants, in the order of [`Way::ALL`].
pub(super) struct Answers<'a> {
    pub(super) variants: &'a [Variant],
    pub(super) by_way: [Vec<Answer>; 2],
}

/// The part of the page between its marks.
pub(super) fn made(version: &str, answers: &Answers) -> String {
    let mut text = format!("\nMesa {version}.\n\n## Exceptions\n\n");
    text += &rules::exceptions(rules::ACCEPTED);
    text += "\n## Kernels that the networks launch\n\n";
    text += &kernels(answers, |variant| !variant.launches.is_empty());
    text += "\n## The other kernels: of each, the variant with the most registers\n\n";
    let most = others(answers);
    text += &kernels(answers, |variant| most.contains(&variant.name.as_str()));
    text += "\n## Networks on an RX 580: an estimate\n";
    text += &networks(answers);
    text += "\n## Beside what others reach\n\n";
    text += &classes(answers);
    text
}

/// Rows for the variants that `wanted` picks, two each.
fn kernels(answers: &Answers, wanted: impl Fn(&Variant) -> bool) -> String {
    let mut text = "| kernel | by | VGPRs | SGPRs | LDS | waves | instructions | latency | inverse throughput | reads of \
                    LDS, 4/8/16 B | neighbours | ceiling | in turn |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for (i, variant) in answers.variants.iter().enumerate().filter(|(_, variant)| wanted(variant)) {
        for (way, answers) in Way::ALL.iter().zip(&answers.by_way) {
            let _ = writeln!(text, "{}", row(variant, *way, &answers[i]));
        }
    }
    text
}

fn row(variant: &Variant, way: Way, answer: &Answer) -> String {
    let name = if way == Way::OpenCl { &*variant.name } else { "" };
    let start = format!("| {name} | {} |", way.name());
    let figures = match answer {
        Ok(figures) => figures,
        Err(why) => return format!("{start} {} |", why.replace(['|', '\n'], " ")),
    };
    let Figures { vgprs, sgprs, lds_bytes, waves, latency, inverse_throughput, code, .. } = figures;
    let told = |value: &Option<u64>| value.map_or(String::new(), |value| value.to_string());
    let share = |share: Option<f64>| share.map_or(String::new(), percent);
    let [four, eight, sixteen] = code.reads;
    format!(
        "{start} {vgprs} | {sgprs} | {lds_bytes} | {waves} | {} | {} | {} | {four}/{eight}/{sixteen} | {} | {} | {} |",
        code.instructions,
        told(latency),
        told(inverse_throughput),
        code.narrow,
        share(code.ceiling()),
        share(code.in_turn()),
    )
}

/// Of each kernel that no network launches, the variant with the most vector registers.
fn others<'a>(answers: &Answers<'a>) -> Vec<&'a str> {
    let launched = |kernel: &str| {
        answers.variants.iter().any(|other| other.kernel == kernel && !other.launches.is_empty())
    };
    let mut most: BTreeMap<&str, (u32, &str)> = BTreeMap::new();
    for (i, variant) in answers.variants.iter().enumerate() {
        if launched(&variant.kernel) {
            continue;
        }
        let registers =
            answers.by_way.iter().filter_map(|answers| Some(answers[i].as_ref().ok()?.vgprs));
        let registers = registers.max().unwrap_or(u32::MAX);
        let best = most.entry(&variant.kernel).or_insert((registers, &variant.name));
        if registers > best.0 {
            *best = (registers, &variant.name);
        }
    }
    most.into_values().map(|(_, name)| name).collect()
}

fn networks(answers: &Answers) -> String {
    let mut names: Vec<&str> = Vec::new();
    for launches in answers.variants.iter().flat_map(|variant| &variant.launches) {
        if !names.contains(&&*launches.network) {
            names.push(&launches.network);
        }
    }
    let by_way = answers.by_way.each_ref().map(|of| estimate::networks(answers.variants, of));
    names.into_iter().map(|name| network(name, by_way.each_ref().map(|of| of.get(name)))).collect()
}

/// One network; without a kernel that compiles there is no estimate of it.
fn network(name: &str, by_way: [Option<&Vec<Part>>; 2]) -> String {
    let [opencl, vulkan] = by_way.map(|parts| parts.map_or(&[][..], Vec::as_slice));
    let first = if opencl.len() < vulkan.len() { vulkan } else { opencl };
    let all = first.len();
    let whole = |parts: &[Part]| match parts.len() == all {
        true => format!("**{} ms**", range(estimate::total(parts))),
        false => format!("unknown, since {} of {all} kernels do not compile,", all - parts.len()),
    };
    let launches: f64 = first.iter().map(|part| part.launches).sum();
    let cost = range(estimate::LAUNCH_S * launches);
    let mut text = format!(
        "\n### {name}\n\n{} by OpenCL, {} by Vulkan; {cost} ms of it are the cost of {launches} launches.\n\n\
         | kernel | launches | OpenCL ms | Vulkan ms | bound by | of the card filled |\n|---|---|---|---|---|---|\n",
        whole(opencl),
        whole(vulkan),
    );
    for part in first {
        let of = |parts: &[Part]| {
            let own = parts.iter().find(|own| own.name == part.name);
            own.map_or(String::new(), |own| range(own.seconds))
        };
        let bound = if part.computes { "arithmetic" } else { "memory" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {bound} | {} |",
            part.name,
            part.launches,
            of(opencl),
            of(vulkan),
            percent(part.filled),
        );
    }
    text
}

fn classes(answers: &Answers) -> String {
    let mut text = "| kernel | by | its loop at best | its loop in turn | of the peak | of memory | others |\n\
                    |---|---|---|---|---|---|---|\n"
        .to_owned();
    for (way, answers_of) in Way::ALL.iter().zip(&answers.by_way) {
        for (kernel, class) in estimate::classes(answers.variants, answers_of) {
            let Class { loops, seconds, .. } = class;
            let loops = loops.map(|loops| class.of_peak(loops));
            let told = |end: fn(&Range) -> f64| {
                loops.as_ref().map_or(String::new(), |it| percent(end(it)))
            };
            let others = OTHERS.iter().find(|others| others.kernels.contains(&&*kernel));
            let _ = writeln!(
                text,
                "| {kernel} | {} | {} | {} | {} | {} | {} |",
                way.name(),
                told(|loops| loops.fast),
                told(|loops| loops.slow),
                ends(class.of_peak(seconds)),
                ends(class.of_memory()),
                others.map_or("none known", |others| others.short),
            );
        }
    }
    let (peak, memory) = (estimate::FLOPS_PER_S / 1e12, estimate::BYTES_PER_S / 1e9);
    let _ = write!(
        text,
        "\nThe loop's shares are of the kernel's own multiply-adds, at most 100 %; those of the peak, {peak:.2} TFLOP/s, \
         and of memory, {memory} GB/s, are of all launches of the networks above. `winograd` counts the operations of \
         plain convolutions, as others do: 9 for each 4 of its own. Others have measured, which is more than an \
         estimate:\n\n| kernels | who, on what | what |\n|---|---|---|\n",
    );
    for Others { kernels, on, what, .. } in OTHERS {
        let _ = writeln!(text, "| {} | {on} | {what} |", kernels.join(", "));
    }
    text
}

/// Two ends of a share, the lower first.
fn ends(of: Range) -> String {
    format!("{} to {}", percent(of.slow), percent(of.fast))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100. * share)
}

/// Two ends of a time, in milliseconds.
fn range(of: Range) -> String {
    format!("{:.3}–{:.3}", 1e3 * of.fast, 1e3 * of.slow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Launches;

    #[test]
    fn the_page_has_rows_of_what_is_launched_and_of_the_worst_else() {
        let variant = |name: &str, kernel: &str, launches| Variant {
            name: name.into(),
            kernel: kernel.into(),
            group: 64,
            hot: true,
            launches,
        };
        let launch =
            Launches { network: "bert".into(), times: 1., flops: 8., bytes: 8., groups: 1. };
        let variants = [
            variant("gemm_1", "gemm", vec![launch]),
            variant("gemm_2", "gemm", vec![]),
            variant("pad_1", "pad", vec![]),
            variant("pad_2", "pad", vec![]),
        ];
        let figures = |vgprs| Ok(Figures { vgprs, latency: Some(7), ..Figures::default() });
        let all = || vec![figures(84), figures(96), figures(12), figures(24)];
        let mut vulkan = all();
        vulkan[3] = Err("does not compile: a|b".to_owned());
        let answers = Answers { variants: &variants, by_way: [all(), vulkan] };
        let text = made("25.0.7", &answers);
        assert!(text.contains("| gemm_1 | OpenCL | 84 |") && text.contains("| 7 |"), "{text}");
        assert!(text.contains("| pad_2 | OpenCL | 24 |"), "{text}");
        assert!(text.contains("|  | Vulkan | does not compile: a b |"), "{text}");
        assert!(!text.contains("gemm_2") && !text.contains("pad_1"), "{text}");
        assert!(text.contains("### bert") && text.contains("25.0.7"), "{text}");
    }
}
