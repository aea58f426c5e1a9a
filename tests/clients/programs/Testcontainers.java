// testcontainers for Java at a gate: each step says what came of it, as one JSON object on stdout. Arguments: granted
// device, another.

import com.github.dockerjava.api.model.DeviceRequest;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import org.testcontainers.DockerClientFactory;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.Network;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.images.builder.Transferable;

public class Testcontainers {
    static GenericContainer<?> container() {
        return new GenericContainer<>("ubuntu:24.04")
                .withCommand("sh", "-c", "echo ready; sleep 60")
                .waitingFor(Wait.forLogMessage("ready.*", 1));
    }

    interface Look {
        Object at(GenericContainer<?> box) throws Exception;
    }

    static Object within(GenericContainer<?> made, Look look) throws Exception {
        try (made) {
            made.start();
            return look.at(made);
        }
    }

    static String output(GenericContainer<?> box, String... command) throws Exception {
        return box.execInContainer(command).getStdout();
    }

    static GenericContainer<?> asking(DeviceRequest request) {
        return container()
                .withCreateContainerCmdModifier(made -> made.getHostConfig().withDeviceRequests(List.of(request)));
    }

    static Object exec(GenericContainer<?> box) throws Exception {
        var done = box.execInContainer("sh", "-c", "echo inside; exit 5");
        return List.of(done.getStdout(), done.getExitCode());
    }

    static Object network() throws Exception {
        try (Network made = Network.newNetwork()) {
            var box = container().withNetwork(made).withNetworkAliases("alias");
            return within(box, one -> output(one, "sh", "-c", "ls -d /sys/class/net/eth0"));
        }
    }

    // The sentence of a refusal lies deep below what the library says of it.
    static String whole(Throwable error) {
        String said = String.valueOf(error.getMessage());
        return error.getCause() == null ? said : said + " / " + whole(error.getCause());
    }

    static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            var fields = map.entrySet().stream().map(e -> json(e.getKey()) + ":" + json(e.getValue()));
            return "{" + String.join(",", fields.toList()) + "}";
        }
        if (value instanceof List<?> list) {
            return "[" + String.join(",", list.stream().map(Testcontainers::json).toList()) + "]";
        }
        if (!(value instanceof String text)) return String.valueOf(value);
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n").replace("\r", "") + '"';
    }

    public static void main(String[] words) {
        var cdi = new DeviceRequest().withDriver("cdi").withDeviceIds(List.of(words[0]));
        var other = new DeviceRequest().withDriver("cdi").withDeviceIds(List.of(words[1]));
        var gpus = new DeviceRequest().withCount(-1).withCapabilities(List.of(List.of("gpu")));
        Map<String, Callable<Object>> steps = new LinkedHashMap<>();
        steps.put("run", () -> within(container(), GenericContainer::getLogs));
        steps.put("exec", () -> within(container(), Testcontainers::exec));
        var set = container().withEnv("A", "b");
        steps.put("environment", () -> within(set, box -> output(box, "sh", "-c", "echo $A")));
        var given = container().withCopyToContainer(Transferable.of("data"), "/tmp/file");
        steps.put("files", () -> within(given, box -> output(box, "cat", "/tmp/file")));
        steps.put("network", Testcontainers::network);
        steps.put("device", () -> within(asking(cdi), box -> output(box, "sh", "-c", "(cat </dev/nvidia0) 2>&1")));
        steps.put("ungranted", () -> within(asking(other), box -> "started"));
        steps.put("gpus", () -> within(asking(gpus), box -> "started"));
        steps.put("privileged", () -> within(container().withPrivilegedMode(true), box -> "started"));
        Map<String, Object> found = new LinkedHashMap<>();
        steps.forEach((name, step) -> {
            try {
                found.put(name, step.call());
            } catch (Throwable error) {
                found.put(name, Map.of("error", error.getClass().getSimpleName(), "said", whole(error)));
            }
        });
        System.out.println(json(found));
        System.exit(0);
    }
}
