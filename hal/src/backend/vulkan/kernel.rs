//! One kernel of a program: its pipelines, and how a launch fits it.

mod cache;
mod fit;

use super::buffer::VkBuffer;
use super::event::Keep;
use super::hazards::Access;
use super::shared::Shared;
use crate::error::Result;
use crate::program::{Arg, Launch};
use ash::vk;
pub(super) use cache::Cache;
use fit::{choose, launch_divides, pack, refuse_unfit};
use lgp_portable::Parameter;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};

/// A kernel; submissions keep theirs.
#[derive(Debug)]
pub(super) struct Kernel {
    shared: Arc<Shared>,
    cache: Arc<Cache>,
    code: lgp_portable::Kernel,
    pub(super) set_layout: vk::DescriptorSetLayout,
    pub(super) layout: vk::PipelineLayout,
    /// The pipelines by the size of their work-groups, and whether they are for pieces of grids.
    pipelines: Mutex<HashMap<([u32; 3], bool), vk::Pipeline>>,
}

/// The arguments of a launch as the driver takes them; a queue reuses their memory.
#[derive(Default)]
pub(super) struct Arguments {
    pub(super) buffers: Vec<(u32, vk::DescriptorBufferInfo)>,
    pub(super) accesses: Vec<Access>,
    pub(super) keep: Vec<Keep>,
    pub(super) scalars: Vec<u8>,
    /// The place of a piece's first work-group behind the scalars, if it has one.
    first_offset: Option<usize>,
}

impl Arguments {
    /// Forgets everything, and keeps no block alive.
    pub(super) fn clear(&mut self) {
        self.buffers.clear();
        self.accesses.clear();
        self.keep.clear();
        self.scalars.clear();
    }

    /// Sets the first work-group of a piece of the grid.
    pub(super) fn begin_at(&mut self, first: [u32; 3]) {
        let place = self.first_offset.and_then(|at| self.scalars.get_mut(at..)).unwrap_or_default();
        for (place, side) in place.chunks_exact_mut(4).zip(first) {
            place.copy_from_slice(&side.to_ne_bytes());
        }
    }
}

impl Kernel {
    /// Prepares a kernel, and its pipeline if its size is known.
    pub(super) fn new(cache: &Arc<Cache>, code: lgp_portable::Kernel) -> Result<Self> {
        let shared = &cache.shared;
        refuse_unfit(shared.id, &shared.facts.has, &shared.facts.limits, &code)?;
        let bindings: Vec<_> = code
            .parameters
            .iter()
            .filter_map(|it| match it {
                Parameter::Buffer { binding, .. } => Some(*binding),
                Parameter::Scalar { .. } => None,
            })
            .map(|binding| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let mut kernel = Self {
            shared: Arc::clone(shared),
            cache: Arc::clone(cache),
            code,
            set_layout: vk::DescriptorSetLayout::null(),
            layout: vk::PipelineLayout::null(),
            pipelines: Mutex::default(),
        };
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: the structures live through the call.
        kernel.set_layout = unsafe { shared.device.create_descriptor_set_layout(&info, None) }
            .map_err(shared.failed("vkCreateDescriptorSetLayout"))?;
        let layouts = [kernel.set_layout];
        let scalars = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(kernel.code.scalar_bytes.next_multiple_of(4))];
        let info = vk::PipelineLayoutCreateInfo::default()
            .set_layouts(&layouts)
            .push_constant_ranges(&scalars);
        // SAFETY: as above; the layout of sets is of the device.
        kernel.layout = unsafe { shared.device.create_pipeline_layout(&info, None) }
            .map_err(shared.failed("vkCreatePipelineLayout"))?;
        if let Some(group) = kernel.code.group {
            kernel.pipeline(group, false)?;
        }
        Ok(kernel)
    }

    /// The pipeline whose work-groups have this size: for pieces of a grid, or for whole grids.
    pub(super) fn pipeline(&self, group: [u32; 3], of_pieces: bool) -> Result<vk::Pipeline> {
        // A panic leaves the map whole.
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipeline) = pipelines.get(&(group, of_pieces)) {
            return Ok(*pipeline);
        }
        let pipeline = self.build(group, of_pieces)?;
        pipelines.insert((group, of_pieces), pipeline);
        Ok(pipeline)
    }

    fn build(&self, group: [u32; 3], of_pieces: bool) -> Result<vk::Pipeline> {
        let (shared, device) = (&self.shared, &self.shared.device);
        // A name of the language has no zero byte.
        let name = CString::new(self.code.name.as_str()).unwrap_or_default();
        let info = vk::ShaderModuleCreateInfo::default().code(&self.code.words);
        // SAFETY: the compiler of the portable language wrote the module, with capabilities that
        // the device has.
        let module = unsafe { device.create_shader_module(&info, None) }
            .map_err(shared.failed("vkCreateShaderModule"))?;
        let entry =
            |id: u32| vk::SpecializationMapEntry { constant_id: id, offset: 4 * id, size: 4 };
        // What a piece's first work-group is multiplied with: nothing is left of it for a whole grid.
        let (one, sides) = if of_pieces { (1, group) } else { (0, [0; 3]) };
        let entries = [0, 1, 2, 3, 4, 5, 6].map(entry);
        let data = group.into_iter().chain([one]).chain(sides).flat_map(u32::to_ne_bytes);
        let data: Vec<u8> = data.collect();
        let constants = vk::SpecializationInfo::default().map_entries(&entries).data(&data);
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(&name)
            .specialization_info(&constants);
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(self.layout)];
        // SAFETY: module, layout and store are of the device; the structures live through the call,
        // after which the module is not needed.
        let made = unsafe {
            let made = device.create_compute_pipelines(self.cache.cache, &info, None);
            device.destroy_shader_module(module, None);
            made
        };
        let made = made.map_err(|(_, error)| shared.failed("vkCreateComputePipelines")(error))?;
        Ok(made.first().copied().unwrap_or_default())
    }

    /// The size of a launch's work-groups, and their number in each dimension.
    pub(super) fn places(&self, launch: &Launch<'_>) -> Result<([u32; 3], [u32; 3])> {
        let limits = &self.shared.facts.limits;
        let (most, sides) =
            (limits.max_compute_work_group_invocations, limits.max_compute_work_group_size);
        let group = match (self.code.group, launch.local) {
            (Some(own), Some(local)) if own.map(|side| side as usize) != local => {
                let reason = format!("work-groups of {local:?} asked, the kernel has {own:?}");
                return Err(launch.refusal(reason));
            }
            (Some(own), _) => own.map(|side| side as usize),
            (None, Some(local)) => local,
            (None, None) => choose(launch.global, most as usize, sides.map(|side| side as usize)),
        };
        launch_divides(launch, group)?;
        let too_large = group.iter().zip(sides).any(|(&side, most)| side > most as usize);
        if too_large {
            let reason = format!("work-groups of {group:?} exceed the device's {sides:?}");
            return Err(launch.refusal(reason));
        }
        let groups = [0, 1, 2].map(|axis| launch.global[axis] / group[axis].max(1));
        let counts = limits.max_compute_work_group_count;
        let is_larger = groups.iter().zip(counts).any(|(&count, most)| count > most as usize);
        if self.code.first_offset.is_none() && is_larger {
            let reason = format!(
                "{groups:?} work-groups exceed the device's {counts:?}, and the kernel asks for \
                 their number, or has too many scalars to be launched in pieces"
            );
            return Err(launch.refusal(reason));
        }
        // Kernels count work-items in 32 bits.
        let narrow = |values: [usize; 3]| values.map(|it| u32::try_from(it).unwrap_or(u32::MAX));
        if launch.global.iter().any(|&side| u32::try_from(side).is_err()) {
            let reason = format!("the grid {:?} exceeds 32 bits in a dimension", launch.global);
            return Err(launch.refusal(reason));
        }
        Ok((narrow(group), narrow(groups)))
    }

    /// Checks a launch's arguments against the kernel's parameters, and packs them into `arguments`.
    pub(super) fn arguments(&self, launch: &Launch<'_>, arguments: &mut Arguments) -> Result<()> {
        let parameters = &self.code.parameters;
        let (given, expected) = (launch.args.len(), parameters.len());
        if given != expected {
            return Err(launch.refusal(format!("{given} arguments given, expected {expected}")));
        }
        arguments.clear();
        arguments.scalars.resize(self.code.scalar_bytes.next_multiple_of(4) as usize, 0);
        arguments.first_offset = self.code.first_offset.map(|at| at as usize);
        for (index, (arg, parameter)) in launch.args.iter().zip(parameters).enumerate() {
            match (arg, parameter) {
                (Arg::Buffer(buffer), Parameter::Buffer { binding, written }) => {
                    let VkBuffer { block, start, .. } = VkBuffer::of(*buffer, &self.shared)?;
                    let bytes = buffer.bytes();
                    arguments.buffers.push((*binding, block.descriptor(*start, bytes)));
                    arguments.accesses.push(block.access(*start, bytes, *written));
                    arguments.keep.push(Arc::clone(block) as Keep);
                }
                (Arg::Buffer(_), Parameter::Scalar { ty, .. }) => {
                    let reason = format!("argument {index} is a buffer, expected {ty:?}");
                    return Err(launch.refusal(reason));
                }
                (arg, Parameter::Buffer { .. }) => {
                    let reason = format!("argument {index} is {arg:?}, expected a buffer");
                    return Err(launch.refusal(reason));
                }
                (arg, Parameter::Scalar { ty, offset }) => {
                    let place = arguments.scalars.get_mut(*offset as usize..).unwrap_or_default();
                    if !pack(arg, *ty, place) {
                        let reason = format!("argument {index} is {arg:?}, expected {ty:?}");
                        return Err(launch.refusal(reason));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if !self.shared.may_free() {
            return;
        }
        let device = &self.shared.device;
        let pipelines = self.pipelines.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: submissions keep their kernels, so none uses this one.
        unsafe {
            pipelines.drain().for_each(|(_, pipeline)| device.destroy_pipeline(pipeline, None));
            device.destroy_pipeline_layout(self.layout, None);
            device.destroy_descriptor_set_layout(self.set_layout, None);
        }
    }
}
