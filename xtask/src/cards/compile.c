/* Compiles the kernels of a folder for the one device that there is; `variants.tsv` lists them. The
   driver prints what it makes of each after a line `== NAME`. Links with no OpenCL, whose headers
   and library need not be on the machine that compiles this. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *handle;
enum { DEVICE_TYPE_GPU = 4, PROGRAM_BUILD_LOG = 0x1183 };

#define LOAD(type, name, ...) type (*name)(__VA_ARGS__) = dlsym(library, #name)

static char text[1 << 20];

static const char *read_file(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) return NULL;
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  return text;
}

int main(int count, char **arguments) {
  void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
  if (!library || count != 2 || chdir(arguments[1])) return 2;
  LOAD(int, clGetPlatformIDs, unsigned, handle *, unsigned *);
  LOAD(int, clGetDeviceIDs, handle, unsigned long, unsigned, handle *, unsigned *);
  LOAD(handle, clCreateContext, const void *, unsigned, handle *, void *, void *, int *);
  LOAD(handle, clCreateProgramWithSource, handle, unsigned, const char **, void *, int *);
  LOAD(int, clBuildProgram, handle, unsigned, handle *, const char *, void *, void *);
  LOAD(int, clGetProgramBuildInfo, handle, handle, unsigned, size_t, void *, size_t *);
  LOAD(int, clReleaseProgram, handle);

  handle platform, device;
  unsigned found;
  int error;
  if (clGetPlatformIDs(1, &platform, &found) ||
      clGetDeviceIDs(platform, DEVICE_TYPE_GPU, 1, &device, &found)) {
    fprintf(stderr, "no device\n");
    return 2;
  }
  handle context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
  FILE *table = fopen("variants.tsv", "r");
  char line[1 << 14], path[1 << 10];
  if (!context || !table || !fgets(line, sizeof line, table)) return 2;
  while (fgets(line, sizeof line, table)) {
    char *rest = line;
    const char *name = strsep(&rest, "\t");
    fprintf(stderr, "== %s\n", name);
    snprintf(path, sizeof path, "%s.cl", name);
    const char *source = read_file(path);
    if (!source) return 2;
    handle program = clCreateProgramWithSource(context, 1, &source, NULL, &error);
    if (clBuildProgram(program, 1, &device, NULL, NULL, NULL)) {
      text[0] = 0;
      clGetProgramBuildInfo(program, device, PROGRAM_BUILD_LOG, sizeof text, text, NULL);
      fprintf(stderr, "does not compile: %s\n", text);
    }
    clReleaseProgram(program);
  }
  return 0;
}
