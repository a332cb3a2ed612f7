//! Products of matrices on devices: which kernel, in which tiles, in how many parts.

mod factor;
mod library;
mod schedule;

use super::expression::literal;
use super::kernel::{Argument, Call, Kernel, c_type, groups, load};
use super::launches::Launches;
use super::pointwise::places;
pub(crate) use factor::{Blocks, Factor, Scale, Zero};
use lgp_memory::DType;
use schedule::{Schedule, Way};

/// A matrix that is added, times `scale`; its steps are 0 along a broadcast dimension.
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
    /// The matrix that is added.
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

    /// Adds its launches to others.
    pub(crate) fn add_to(&self, launches: &mut Launches) -> Option<()> {
        if self.count()? == 0 {
            return Some(());
        }
        let (product, steps) = self.in_order();
        product.add_with(&product.schedule(), launches, steps)
    }

    /// The product, transposed if that gives it few rows instead of few columns; and the elements
    /// from one row and one column of its result to the next.
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
            // A work-item goes along the sums of its columns.
            Way::Rows { .. } if right.along => {
                [if left.along { widths[0] } else { 1 }, right.widest(k).max(widths[1])]
            }
            Way::Rows { .. } => [1, 1],
        };
        kernel = kernel
            .define("LEFT_WIDTH", widths[0])
            .define("RIGHT_WIDTH", widths[1])
            .define("LEFT_VECTOR(to, at, from, side)", left.vector("LEFT_LOAD", "a", widths[0]))
            .define("RIGHT_VECTOR(to, at, from, side)", right.vector("RIGHT_LOAD", "b", widths[1]))
            .define("EDGE", u8::from(k % schedule.depth != 0));
        let kernel = kernel.define("OPERANDS", &parameters.declared);
        let mut arguments = parameters.given;
        arguments.push(y);
        for size in [m, n, k, steps[0], steps[1], batches, schedule.part] {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        let groups = schedule.groups(self.sizes, batches)?;
        let (flops, mut bytes) = (2 * (count as u64) * (k as u64), self.bytes());
        if schedule.parts > 1 {
            bytes += (count * (4 * schedule.parts - self.y.1.size())) as u64;
        }
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

    /// The types of elements in local memory and of sums.
    fn numbers(&self) -> (&'static str, &'static str) {
        if self.y.1.is_float() { ("float", "float") } else { ("i16", "i32") }
    }

    fn operand_defines(&self, kernel: Kernel, parameters: &mut Parameters) -> Option<Kernel> {
        let [all, a, b] = self.batches;
        let [left, right] = self.operands;
        let batch = places(all, &[a, b], "(z)")?;
        let (tile, sum) = self.numbers();
        let [left_width, right_width] = self.widths();
        // With more steps at once, elements of 16 bits are unpacked into too many registers; and
        // where one operand is loaded in vectors and the other in single elements, the loads under
        // way leave too few registers.
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
                .define("UNROLL_DEPTH", unroll)
                .define("SUM", sum)
                .define("LEFT_ALONG", u8::from(left.along))
                .define("RIGHT_ALONG", u8::from(right.along))
                .define("LEFT_LOAD(place, side)", left.load("a", parameters)?)
                .define("RIGHT_LOAD(place, side)", right.load("b", parameters)?)
                .define("LEFT_BATCH(z)", start(&batch[0], "m * k"))
                .define("RIGHT_BATCH(z)", start(&batch[1], "k * n")),
        )
    }

    /// The kernel with the result for a sum, and how that is stored.
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
            // Steps that follow in the same kernel take floats only.
            false => Some(stored_plainly(kernel, c_type(y)?)),
        }
    }
}

const SUM_PARTS: &str =
    concat!(include_str!("product/product.h"), include_str!("product/sum_parts.cl"));
const SUM_GROUP: usize = 64;

/// The kernel, which stores its results without further steps.
fn stored_plainly(kernel: Kernel, y: &str) -> Kernel {
    kernel
        .define("EXTRA_PARAMETERS", "")
        .define("Y_TYPE", y)
        .define("FINISH(value, index)", "y[index] = (value)")
}

/// The expression of where a matrix begins: the one at position `number` among matrices of `size`
/// elements.
fn start(number: &str, size: &str) -> String {
    if number == "0" { "0".to_owned() } else { format!("(({number}) * {size})") }
}

/// Parameters of a kernel, and their arguments.
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
