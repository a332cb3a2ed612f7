//! Products of matrices on devices: which kernel, in which tiles, in how many parts.

mod schedule;

use super::pointwise::{literal, places};
use super::recipe::{Argument, Call, Kernel, Launches, c_type, groups, load};
use lgp_memory::DType;
use schedule::{Schedule, Way};

/// An operand of a product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Factor {
    /// Where it is.
    pub argument: Argument,
    /// The type of its elements.
    pub dtype: DType,
    /// Whether neighbours in memory follow each other along the sum, not along its other side.
    pub along: bool,
    /// What is subtracted from its elements, if they are integers.
    pub zero: Option<Zero>,
}

/// What stands for 0 in an operand of integers; of its dtype.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Zero {
    /// Where it is.
    pub argument: Argument,
    /// Whether there is one for each row of the left operand, or column of the right one.
    pub each: bool,
}

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

    /// Adds its launches to others.
    pub(crate) fn add_to(&self, launches: &mut Launches) -> Option<()> {
        let count = self.count()?;
        if count == 0 {
            return Some(());
        }
        // Few columns are few rows of the transposed product.
        let [m, n, k] = self.sizes;
        if n < m && n <= schedule::ROWS_FEW {
            let [left, right] = self.operands;
            let [all, a, b] = self.batches;
            let steps = |addend: Addend| [addend.steps[1], addend.steps[0]];
            let addend = self.addend.map(|c| Addend { steps: steps(c), ..c });
            let swapped = Product {
                sizes: [n, m, k],
                operands: [right, left],
                batches: [all, b, a],
                addend,
                ..self.clone()
            };
            return swapped.add_in_order(launches, [1, n]);
        }
        self.add_in_order(launches, [n, 1])
    }

    /// Adds its launches, where the result's rows and columns are `steps` apart.
    fn add_in_order(&self, launches: &mut Launches, steps: [usize; 2]) -> Option<()> {
        let [m, n, k] = self.sizes;
        let count = self.count()?;
        let batches: usize = self.batches[0].iter().product();
        let schedule = Schedule::new(self.sizes, batches, self.operands[1].along);
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
        if let Way::Tiles(tile) = schedule.way {
            let [left, right] = self.operands;
            kernel = kernel
                .define("LEFT_WIDTH", left.width(m, k))
                .define("RIGHT_WIDTH", right.width(n, k))
                .define("EDGE", u8::from(k % tile.depth != 0));
        }
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
        let bytes = |batches: &[usize], size: usize, dtype: DType| {
            batches.iter().product::<usize>() as u64 * size as u64 * dtype.size() as u64
        };
        let [all, a, b] = self.batches;
        let [left, right] = self.operands;
        bytes(all, m * n, self.y.1) + bytes(a, m * k, left.dtype) + bytes(b, k * n, right.dtype)
    }

    /// How elements are held in local memory, and what sums are.
    fn numbers(&self) -> (&'static str, &'static str) {
        if self.operands[0].dtype.is_float() { ("float", "float") } else { ("i16", "i32") }
    }

    fn operand_defines(&self, kernel: Kernel, parameters: &mut Parameters) -> Option<Kernel> {
        let [all, a, b] = self.batches;
        let [left, right] = self.operands;
        let batch = places(all, &[a, b], "(z)")?;
        let (tile, sum) = self.numbers();
        Some(
            kernel
                .define("TILE", tile)
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

const SUM_PARTS: &str = concat!(include_str!("product.h"), include_str!("sum_parts.cl"));
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

impl Factor {
    /// Elements that are loaded at once, along its rows or columns of these lengths.
    fn width(&self, side: usize, k: usize) -> usize {
        let length = if self.along { k } else { side };
        if self.dtype == DType::F32 && length > 0 && length % 4 == 0 { 4 } else { 1 }
    }

    /// The expression of an element at `place`, of row or column `side`; declares what it reads.
    fn load(&self, name: &str, parameters: &mut Parameters) -> Option<String> {
        let ty = c_type(self.dtype)?;
        parameters.add(&format!("GLOBAL const {ty} *{name}"), self.argument);
        let Some(zero) = self.zero else { return Some(load(self.dtype, name, "place")) };
        parameters.add(&format!("GLOBAL const {ty} *{name}_zero"), zero.argument);
        let at = if zero.each { "side" } else { "0" };
        Some(format!("(i16)({name}[place] - {name}_zero[{at}])"))
    }
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
