//! A macro for tests that need a device.

/// Makes tests of functions that take an opened device, on the first device of each backend:
/// `on_backends!([opencl vulkan] { works fails })`. A test on a device that is not there says that it is skipped.
#[doc(hidden)]
#[macro_export]
macro_rules! on_backends {
    (@on $backend:ident { $($test:ident)+ }) => {
        mod $backend {
            $(
                #[test]
                fn $test() -> std::process::ExitCode {
                    let name = concat!(stringify!($backend), ":0");
                    match name.parse().and_then($crate::open) {
                        Ok(device) => std::process::Termination::report(super::$test(device)),
                        Err(error @ ($crate::Error::NoDevice { .. }
                            | $crate::Error::BackendNotCompiled { .. })) => {
                            println!("skipped: {}: {error}", stringify!($backend));
                            std::process::ExitCode::SUCCESS
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            )+
        }
    };
    ([$($backend:ident)+] $tests:tt) => { $($crate::on_backends!(@on $backend $tests);)+ };
}
