//! Products of matrices on devices: which kernel, in which tiles, in how many parts.

mod factor;
mod schedule;

use super::library::{LibraryOperand, LibraryProduct};
use super::pointwise::{literal, places};
use super::recipe::{Argument, Call, Kernel, Launches, c_type, groups, load};
pub(crate) use factor::{Blocks, Factor, Scale, Zero};
use lgp_memory::DType;
use schedule::{Schedule, Way};

/// A matrix that is added, times `scale`; its steps are 0 where it repeats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addend {
    /// Where it is.
    pub argument: Argument,
    /// The type of its elements.
    pub dtype: DType,
    /// Its factor.
    pub scale: f32,
    /// Elements from one row to the next, and from one column to the next.
    pub steps: [usize; 2],
}

/// `y = alpha · left · right + addend`, of `m × k` and `k × n`, for each of several batches.
/// Operands of bytes are multiplied and added up as integers.
#[derive(Debug, Clone)]
pub(crate) struct Product<'a> {
    /// Rows, columns and the length of each sum.
    pub sizes: [usize; 3],
    /// Both operands.
    pub operands: [Factor; 2],
    /// The batches of the product, and those of each operand, which broadcast to them.
    pub batches: [&'a [usize]; 3],
    /// Factor of the product.
    pub alpha: f32,
    /// What is added.
    pub addend: Option<Addend>,
    /// Where the result goes, and the type of its elements; i32 for operands of bytes.
    pub y: (Argument, DType),
}

impl Product<'_> {
    /// The launches. `None` where kernels cannot index it.
    pub(crate) fn launches(&self) -> Option<Launches> {
        let mut launches = Launches::default();
        self.add_to(&mut launches)?;
        Some(launches)
    }

    /// The launches of every schedule that is worth measuring; [`Product::launches`] come first.
    pub(crate) fn schedules(&self) -> Vec<Launches> {
        let Some(best) = self.launches() else { return Vec::new() };
        if self.count() == Some(0) {
            return vec![best];
        }
        let (product, steps) = self.in_order();
        let others = product.schedule().others(product.sizes[2], product.widths());
        let launches = |schedule: &Schedule| {
            let mut launches = Launches::default();
            product.add_with(schedule, &mut launches, steps)?;
            Some(launches)
        };
        let own = std::iter::once(best).chain(others.iter().filter_map(launches));
        own.chain(self.library()).collect()
    }

    /// The launches where the vendor's library multiplies. A kernel finishes what it leaves; where
    /// there is nothing to finish, there is a way without one too, and it comes first.
    fn library(&self) -> Vec<Launches> {
        let [m, n, k] = self.sizes;
        let [all, left, right] = self.batches.map(|dims| dims.iter().product::<usize>());
        let plain = |x: Factor| x.dtype == DType::F32 && x.zero.is_none() && x.scale.is_none();
        let regular = |batches: usize| batches == all || batches == 1;
        // What has few rows or columns waits for memory, whoever multiplies.
        let is_small = m.min(n) <= schedule::ROWS_FEW || k == 0;
        if is_small || !self.operands.into_iter().all(plain) || !regular(left) || !regular(right) {
            return Vec::new();
        }
        let [a, b] = self.operands;
        let operand = |x: Factor, transposed: bool, batches: usize| LibraryOperand {
            argument: x.argument,
            transposed,
            each: batches > 1,
        };
        let operands = [operand(a, !a.along, left), operand(b, b.along, right)];
        let product = |result: Argument| {
            Some(Box::new(LibraryProduct { sizes: self.sizes, batch: all, operands, result }))
        };
        let mut ways = Vec::new();
        let is_plain = self.alpha.to_bits() == 1f32.to_bits() && self.addend.is_none();
        if is_plain && self.y.1 == DType::F32 {
            ways.push(Launches { library: product(self.y.0), ..Launches::default() });
        }
        let finished = || {
            let count = self.count()?;
            let (library, scratch) = (product(Argument::Scratch(0)), vec![count.checked_mul(4)?]);
            let calls = vec![self.sum_parts(Argument::Scratch(0), count, 1, [n, 1])?];
            Some(Launches { library, calls, scratch })
        };
        ways.extend(finished());
        ways
    }

    /// Adds its launches to others.
    pub(crate) fn add_to(&self, launches: &mut Launches) -> Option<()> {
        if self.count()? == 0 {
            return Some(());
        }
        let (product, steps) = self.in_order();
        product.add_with(&product.schedule(), launches, steps)
    }

    /// The product with few rows rather than few columns, and how far the rows and columns of its
    /// result are apart.
    fn in_order(&self) -> (Self, [usize; 2]) {
        let [m, n, k] = self.sizes;
        if n >= m || n > schedule::ROWS_FEW {
            return (self.clone(), [n, 1]);
        }
        // Few columns are few rows of the transposed product.
        let [left, right] = self.operands;
        let [all, a, b] = self.batches;
        let steps = |addend: Addend| [addend.steps[1], addend.steps[0]];
        let addend = self.addend.map(|c| Addend { steps: steps(c), ..c });
        let swapped = Self {
            sizes: [n, m, k],
            operands: [right, left],
            batches: [all, b, a],
            addend,
            ..self.clone()
        };
        (swapped, [1, n])
    }

    /// How many elements of each operand are loaded at once.
    fn widths(&self) -> [usize; 2] {
        let ([m, n, k], [left, right]) = (self.sizes, self.operands);
        [left.width(m, k), right.width(n, k)]
    }

    fn schedule(&self) -> Schedule {
        let batches = self.batches[0].iter().product();
        Schedule::new(self.sizes, batches, self.operands[1].along, self.widths())
    }

    /// Adds its launches, where the result's rows and columns are `steps` apart.
    fn add_with(
        &self,
        schedule: &Schedule,
        launches: &mut Launches,
        steps: [usize; 2],
    ) -> Option<()> {
        let [m, n, k] = self.sizes;
        let count = self.count()?;
        let batches: usize = self.batches[0].iter().product();
        let ([left, right], widths) = (self.operands, self.widths());
        let mut parameters = Parameters::default();
        let mut kernel = self.operand_defines(schedule.kernel(), &mut parameters)?;
        let mut y = self.y.0;
        if schedule.parts == 1 {
            kernel = self.result_defines(kernel, &mut parameters)?;
        } else {
            y = Argument::Scratch(launches.scratch.len());
            launches.scratch.push(count.checked_mul(schedule.parts)?.checked_mul(4)?);
            kernel = kernel.define("RESULT(sum, row, column)", "(sum)");
            kernel = stored_plainly(kernel, self.numbers().1);
        }
        let widths = match schedule.way {
            Way::Tiles(_) => widths,
            // A work-item goes along the sum of one column.
            Way::Rows { .. } => [1, if right.along { widths[1] } else { 1 }],
        };
        kernel = kernel
            .define("LEFT_WIDTH", widths[0])
            .define("RIGHT_WIDTH", widths[1])
            .define("LEFT_VECTOR(to, from, side)", left.vector("LEFT_LOAD", "a", widths[0]))
            .define("RIGHT_VECTOR(to, from, side)", right.vector("RIGHT_LOAD", "b", widths[1]))
            .define("EDGE", u8::from(k % schedule.depth != 0));
        let kernel = kernel.define("OPERANDS", &parameters.declared);
        let mut arguments = parameters.given;
        arguments.push(y);
        for size in [m, n, k, steps[0], steps[1], batches, schedule.part] {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        let groups = schedule.groups(self.sizes, batches)?;
        let (flops, bytes) = (2 * (count as u64) * (k as u64), self.bytes());
        launches.calls.push(Call { kernel, groups, arguments, flops, bytes });
        if schedule.parts > 1 {
            launches.calls.push(self.sum_parts(y, count, schedule.parts, steps)?);
        }
        Some(())
    }

    /// Adds up the parts of the sums, which lie as the result does.
    fn sum_parts(
        &self,
        from: Argument,
        count: usize,
        parts: usize,
        steps: [usize; 2],
    ) -> Option<Call> {
        let [m, n, _] = self.sizes;
        let mut parameters = Parameters::default();
        let kernel = Kernel::new("sum_parts", SUM_PARTS, [SUM_GROUP, 1, 1]);
        let kernel = self.result_defines(kernel, &mut parameters)?;
        let kernel =
            kernel.define("OPERANDS", &parameters.declared).define("SUM", self.numbers().1);
        let mut arguments = vec![from];
        arguments.extend(parameters.given);
        arguments.push(self.y.0);
        for size in [m, n, steps[0], steps[1], count, parts] {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        u32::try_from(count.checked_mul(parts)?).ok()?;
        let (count, parts) = (count as u64, parts as u64);
        let groups = [groups(usize::try_from(count).ok()?, SUM_GROUP), 1, 1];
        Some(Call {
            kernel,
            groups,
            arguments,
            flops: count * parts,
            bytes: 4 * count * (parts + 1),
        })
    }

    /// Elements of the result.
    fn count(&self) -> Option<usize> {
        let [m, n, _] = self.sizes;
        self.batches[0].iter().try_fold(m.checked_mul(n)?, |count, &d| count.checked_mul(d))
    }

    /// Bytes of the operands and the result.
    fn bytes(&self) -> u64 {
        let [m, n, k] = self.sizes;
        let count = |batches: &[usize], size: usize| batches.iter().product::<usize>() * size;
        let [all, a, b] = self.batches;
        let [left, right] = self.operands;
        let operands = left.bytes(count(a, m * k)) + right.bytes(count(b, k * n));
        (count(all, m * n) * self.y.1.size() + operands) as u64
    }

    /// How elements are held in local memory, and what sums are.
    fn numbers(&self) -> (&'static str, &'static str) {
        if self.y.1.is_float() { ("float", "float") } else { ("i16", "i32") }
    }

    fn operand_defines(&self, kernel: Kernel, parameters: &mut Parameters) -> Option<Kernel> {
        let [all, a, b] = self.batches;
        let [left, right] = self.operands;
        let batch = places(all, &[a, b], "(z)")?;
        let (tile, sum) = self.numbers();
        let [left_width, right_width] = self.widths();
        // Of more steps at once than these, elements of 16 bits are unpacked into too many registers,
        // and single elements and vectors under way together leave too few.
        let unroll = match tile {
            "i16" => "_Pragma(\"unroll 4\")",
            _ if left_width != right_width => "_Pragma(\"unroll 8\")",
            _ => "",
        };
        let kernel = [left, right]
            .into_iter()
            .fold(kernel, |kernel, x| x.define_blocks(kernel, self.sizes[2]));
        Some(
            kernel
                .define("TILE", tile)
                .define("UNROLL", unroll)
                .define("SUM", sum)
                .define("LEFT_ALONG", u8::from(left.along))
                .define("RIGHT_ALONG", u8::from(right.along))
                .define("LEFT_LOAD(place, side)", left.load("a", parameters)?)
                .define("RIGHT_LOAD(place, side)", right.load("b", parameters)?)
                .define("LEFT_BATCH(z)", start(&batch[0], "m * k"))
                .define("RIGHT_BATCH(z)", start(&batch[1], "k * n")),
        )
    }

    /// What becomes of a sum, and how it is stored.
    fn result_defines(&self, kernel: Kernel, parameters: &mut Parameters) -> Option<Kernel> {
        let mut result = "(sum)".to_owned();
        if self.alpha.to_bits() != 1f32.to_bits() {
            result = format!("{} * {result}", literal(self.alpha));
        }
        if let Some(c) = self.addend {
            parameters.add(&format!("GLOBAL const {} *c", c_type(c.dtype)?), c.argument);
            for (name, step) in ["c_row", "c_column"].into_iter().zip(c.steps) {
                let step = Argument::U32(u32::try_from(step).ok()?);
                parameters.add(&format!("u32 {name}"), step);
            }
            let element = load(c.dtype, "c", "(row) * c_row + (column) * c_column");
            result = match c.scale.to_bits() == 1f32.to_bits() {
                true => format!("({result} + {element})"),
                false => format!("({result} + {} * {element})", literal(c.scale)),
            };
        }
        let kernel = kernel.define("RESULT(sum, row, column)", result);
        let y = self.y.1;
        match y.is_float() {
            true => kernel.storing(y),
            // What may follow it in the same kernel takes floats.
            false => Some(stored_plainly(kernel, c_type(y)?)),
        }
    }
}

const SUM_PARTS: &str =
    concat!(include_str!("product/product.h"), include_str!("product/sum_parts.cl"));
const SUM_GROUP: usize = 64;

/// The kernel, that stores what it has and nothing else.
fn stored_plainly(kernel: Kernel, y: &str) -> Kernel {
    kernel
        .define("EXTRA_PARAMETERS", "")
        .define("Y_TYPE", y)
        .define("FINISH(value, index)", "y[index] = (value)")
}

/// Where matrices of `size` elements begin, of the expression of their number.
fn start(number: &str, size: &str) -> String {
    if number == "0" { "0".to_owned() } else { format!("(({number}) * {size})") }
}

/// Parameters of a kernel, and what they are given.
#[derive(Debug, Default)]
struct Parameters {
    declared: String,
    given: Vec<Argument>,
}

impl Parameters {
    fn add(&mut self, declaration: &str, argument: Argument) {
        self.declared.push_str(declaration);
        self.declared.push_str(", ");
        self.given.push(argument);
    }
}
