/* A stand-in for nvidia-smi: `-L` and `--query-gpu` over whatever libnvidia-ml.so.1 the loader finds, as the real one. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char text[32];
} pci_t;

static void *library;

static int call_failed(const char *name, int code) {
    const char *(*text)(int) = (const char *(*)(int))dlsym(library, "nvmlErrorString");
    fprintf(stderr, "%s: Failed to initialize NVML: %s\n", name, text(code));
    return 255;
}

static void cell(const char *field, unsigned index, void *card, const char *driver) {
    char text[96] = "[N/A]";
    if (!strcmp(field, "index")) snprintf(text, sizeof text, "%u", index);
    if (!strcmp(field, "driver_version")) snprintf(text, sizeof text, "%s", driver);
    if (!strcmp(field, "memory.total")) strcpy(text, "46068");
    if (!strcmp(field, "gpu_recovery_action")) strcpy(text, "None");
    if (!strcmp(field, "uuid")) ((int (*)(void *, char *, unsigned))dlsym(library, "nvmlDeviceGetUUID"))(card, text, 96);
    if (!strcmp(field, "name")) ((int (*)(void *, char *, unsigned))dlsym(library, "nvmlDeviceGetName"))(card, text, 96);
    if (!strcmp(field, "pci.bus_id")) {
        pci_t pci;
        ((int (*)(void *, pci_t *))dlsym(library, "nvmlDeviceGetPciInfo_v3"))(card, &pci);
        snprintf(text, sizeof text, "%s", pci.text);
    }
    fputs(text, stdout);
}

int main(int count, char **words) {
    unsigned cards = 0;
    char driver[80] = "", fields[512] = "";
    const char *query = count > 1 ? strstr(words[1], "--query-gpu=") : NULL;
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        fputs("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", stderr);
        return 12;
    }
    int code = ((int (*)(void))dlsym(library, "nvmlInit_v2"))();
    if (code) return call_failed(words[0], code);
    ((int (*)(char *, unsigned))dlsym(library, "nvmlSystemGetDriverVersion"))(driver, sizeof driver);
    ((int (*)(unsigned *))dlsym(library, "nvmlDeviceGetCount_v2"))(&cards);
    if (!cards) {
        puts("No devices were found");
        return 6;
    }
    for (unsigned index = 0; index < cards; index++) {
        void *card = NULL;
        ((int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2"))(index, &card);
        if (!query) {
            printf("GPU %u: ", index);
            cell("name", index, card, driver);
            fputs(" (UUID: ", stdout);
            cell("uuid", index, card, driver);
            puts(")");
            continue;
        }
        snprintf(fields, sizeof fields, "%s", query + strlen("--query-gpu="));
        for (char *field = strtok(fields, ","); field; field = strtok(NULL, ",")) {
            if (field != fields) fputs(", ", stdout);
            cell(field, index, card, driver);
        }
        puts("");
    }
    return 0;
}
