//! What the Vulkan driver's compiler makes of kernels: `aco FOLDER`, where `variants.tsv` lists them as
//! `xtask/src/kernels.rs` reads it, and `NAME.k` has a source. Prints a line of JSON for each: statistics and machine
//! code. It executes nothing, so that a simulated card will do.

use ash::{Device, Entry, Instance, khr, vk};
use lgp_portable::{Kernel, Parameter};
use serde_json::{Map, Value, json};
use std::ffi::CString;
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A device whose pipelines tell what they were compiled to.
struct Driver {
    device: Device,
    executables: khr::pipeline_executable_properties::Device,
}

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).ok_or("usage: aco FOLDER")?;
    let folder = Path::new(&folder);
    let table = std::fs::read_to_string(folder.join("variants.tsv"))?;
    // SAFETY: the loader is the system's; nothing else in this program calls it.
    let entry = unsafe { Entry::load() }?;
    let app = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
    let info = vk::InstanceCreateInfo::default().application_info(&app);
    // SAFETY: `info` and what it refers to outlive the call.
    let instance = unsafe { entry.create_instance(&info, None) }?;
    let driver = Driver::open(&instance)?;
    for line in table.lines().skip(1) {
        let mut columns = line.split('\t');
        let (name, kernel) = (columns.next().unwrap_or(""), columns.next().unwrap_or(""));
        let group = columns.next().unwrap_or("").parse::<u32>()?;
        let source = std::fs::read_to_string(folder.join(format!("{name}.k")))?;
        let answer = match driver.compile(&source, kernel, group) {
            Ok((statistics, assembly)) => {
                json!({ "name": name, "statistics": statistics, "assembly": assembly })
            }
            Err(error) => json!({ "name": name, "error": error.to_string() }),
        };
        println!("{answer}");
    }
    Ok(())
}

impl Driver {
    /// Opens the first device, with all that it can do.
    fn open(instance: &Instance) -> Result<Self> {
        // SAFETY: the instance is alive, here and in all calls below.
        let found = unsafe { instance.enumerate_physical_devices() }?;
        let physical = *found.first().ok_or("no device")?;
        let mut one = vk::PhysicalDeviceVulkan11Features::default();
        let mut two = vk::PhysicalDeviceVulkan12Features::default();
        let mut told = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default();
        let mut all = vk::PhysicalDeviceFeatures2::default();
        all = all.push_next(&mut one).push_next(&mut two).push_next(&mut told);
        // SAFETY: the chain consists of structs that live until the device is made.
        unsafe { instance.get_physical_device_features2(physical, &mut all) };
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.])];
        let extensions = [khr::pipeline_executable_properties::NAME.as_ptr()];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
        let info = info.enabled_extension_names(&extensions).push_next(&mut all);
        // SAFETY: as above; the features are those that the device itself named.
        let device = unsafe { instance.create_device(physical, &info, None) }?;
        let executables = khr::pipeline_executable_properties::Device::new(instance, &device);
        Ok(Self { device, executables })
    }

    /// Compiles one kernel; answers the driver's statistics and the listing of the machine code, which is empty where
    /// the driver cannot make one.
    fn compile(
        &self,
        source: &str,
        name: &str,
        group: u32,
    ) -> Result<(Map<String, Value>, String)> {
        let kernels = lgp_portable::compile(source, "")?;
        let kernel = kernels.into_iter().find(|kernel| kernel.name == name);
        let kernel = kernel.ok_or_else(|| format!("has no kernel {name:?}"))?;
        let pipeline = self.pipeline(&kernel, group)?;
        let info = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline);
        // SAFETY: the pipeline was made with the flags that both questions need.
        let statistics = unsafe { self.executables.get_pipeline_executable_statistics(&info) }?;
        let statistics = statistics.iter().filter_map(statistic).collect();
        let assembly = self.assembly(&info)?;
        // SAFETY: the pipeline is this call's own, and nothing was launched.
        unsafe { self.device.destroy_pipeline(pipeline, None) };
        Ok((statistics, assembly))
    }

    /// The compiled pipeline. What it is made of lives until the program ends.
    fn pipeline(&self, kernel: &Kernel, group: u32) -> Result<vk::Pipeline> {
        let bindings = kernel.parameters.iter().filter_map(|parameter| match parameter {
            Parameter::Buffer { binding, .. } => Some(
                vk::DescriptorSetLayoutBinding::default()
                    .binding(*binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE),
            ),
            Parameter::Scalar { .. } => None,
        });
        let bindings: Vec<_> = bindings.collect();
        let set = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: the device is alive, and each struct outlives its call; so in all that follow.
        let sets = [unsafe { self.device.create_descriptor_set_layout(&set, None) }?];
        let scalars = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(kernel.scalar_bytes.next_multiple_of(4))];
        let mut layout = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
        if kernel.scalar_bytes > 0 {
            layout = layout.push_constant_ranges(&scalars);
        }
        // SAFETY: see above.
        let layout = unsafe { self.device.create_pipeline_layout(&layout, None) }?;
        let code = vk::ShaderModuleCreateInfo::default().code(&kernel.words);
        // SAFETY: see above; the language's compiler made the words.
        let module = unsafe { self.device.create_shader_module(&code, None) }?;
        let entry = CString::new(kernel.name.as_str())?;
        // A kernel that names its group has no such constants, and ignores these.
        let sides: Vec<u8> = [group, 1, 1].iter().flat_map(|side| side.to_ne_bytes()).collect();
        let constants = [0, 1, 2].map(|id: u32| {
            vk::SpecializationMapEntry::default().constant_id(id).offset(4 * id).size(4)
        });
        let special = vk::SpecializationInfo::default().map_entries(&constants).data(&sides);
        let mut stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(&entry);
        if kernel.group.is_none() {
            stage = stage.specialization_info(&special);
        }
        let flags = vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR
            | vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR;
        let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout);
        let infos = [info.flags(flags)];
        let cache = vk::PipelineCache::null();
        // SAFETY: see above; module and layout are alive.
        let made = unsafe { self.device.create_compute_pipelines(cache, &infos, None) };
        let made = made.map_err(|(_, error)| error)?;
        // SAFETY: the pipeline has its own copy of the module.
        unsafe { self.device.destroy_shader_module(module, None) };
        Ok(*made.first().ok_or("no pipeline was made")?)
    }

    fn assembly(&self, info: &vk::PipelineExecutableInfoKHR<'_>) -> Result<String> {
        // SAFETY: the pipeline was made with the flag that this needs.
        let mut texts =
            unsafe { self.executables.get_pipeline_executable_internal_representations(info) }?;
        // The first call tells sizes, the second fills what it is given.
        let mut buffers: Vec<Vec<u8>> = texts.iter().map(|text| vec![0; text.data_size]).collect();
        for (text, buffer) in texts.iter_mut().zip(&mut buffers) {
            text.p_data = buffer.as_mut_ptr().cast();
        }
        let mut count = u32::try_from(texts.len())?;
        let fill = self.executables.fp().get_pipeline_executable_internal_representations_khr;
        // SAFETY: `count` structs follow, and each names a buffer of the size that it tells.
        unsafe { fill(self.device.handle(), info, &raw mut count, texts.as_mut_ptr()) }.result()?;
        let named = texts.iter().zip(&buffers).find(|(text, _)| {
            text.name_as_c_str().is_ok_and(|name| name.to_bytes() == b"Assembly")
        });
        let text = named.map_or(&[][..], |(_, buffer)| buffer);
        Ok(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
    }
}

/// The name and value of a statistic, unless it is no whole number.
fn statistic(of: &vk::PipelineExecutableStatisticKHR<'_>) -> Option<(String, Value)> {
    let name = of.name_as_c_str().ok()?.to_str().ok()?.to_owned();
    if of.format != vk::PipelineExecutableStatisticFormatKHR::UINT64 {
        return None;
    }
    // SAFETY: the format says which field is set.
    Some((name, json!(unsafe { of.value.u64 })))
}
