"""Compiles kernels with NVRTC: jobs are read from a JSON file, a line of JSON answers each."""

import ctypes
import importlib.util
import json
import multiprocessing
import pathlib
import sys

# The assembler's own words on registers and spills become part of the log.
OPTIONS = ["--ptxas-options=-v"]


def library():
    package = importlib.util.find_spec("nvidia.cuda_nvrtc")
    folder = pathlib.Path(package.submodule_search_locations[0]) / "lib"
    return ctypes.CDLL(str(folder / "libnvrtc.so.12"))


def compile(job):
    nvrtc = library()
    program = ctypes.c_void_p()
    source = job["source"].encode()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernel.cu", 0, None, None) != 0:
        return {"compiled": False, "log": "error: NVRTC takes no program"}
    options = [option.encode() for option in [f"-arch={job['chip']}", *OPTIONS]]
    code = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return {"compiled": code == 0, "log": log.value.decode(errors="replace")}


if __name__ == "__main__":
    jobs = json.loads(pathlib.Path(sys.argv[1]).read_text())
    # Processes, since one process compiles one program at a time.
    with multiprocessing.Pool() as pool:
        for answer in pool.imap(compile, jobs):
            print(json.dumps(answer))
