/* A libcuda.so.1 without GPUs that records when it is started, and which GPUs are visible then. The CUDA runtime asks
 * cuGetProcAddress for all other functions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NO_DEVICE = 100, VERSION = 13000 };

int cuInit(unsigned flags) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  FILE *log = fopen(getenv("CUDA_DRIVER_LOG"), "a");
  fprintf(log, "%d %s\n", getpid(), visible ? visible : "all");
  fclose(log);
  return NO_DEVICE;
}

int cuDriverGetVersion(int *version) {
  *version = VERSION;
  return SUCCESS;
}

static int without_device(void) { return NO_DEVICE; }

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long flags, int *status) {
  if (!strcmp(name, "cuInit")) *function = (void *)cuInit;
  else if (!strcmp(name, "cuDriverGetVersion")) *function = (void *)cuDriverGetVersion;
  else if (!strcmp(name, "cuGetProcAddress")) *function = (void *)cuGetProcAddress_v2;
  else *function = (void *)without_device;
  if (status) *status = 0;
  return SUCCESS;
}
