// docker-java at a gate: each step says what came of it, as one JSON object on stdout. Arguments: granted device,
// another.

import com.github.dockerjava.api.DockerClient;
import com.github.dockerjava.api.async.ResultCallback;
import com.github.dockerjava.api.command.BuildImageResultCallback;
import com.github.dockerjava.api.model.ContainerNetwork;
import com.github.dockerjava.api.model.Device;
import com.github.dockerjava.api.model.DeviceRequest;
import com.github.dockerjava.api.model.Event;
import com.github.dockerjava.api.model.Frame;
import com.github.dockerjava.api.model.HostConfig;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.commons.compress.archivers.tar.TarArchiveEntry;
import org.apache.commons.compress.archivers.tar.TarArchiveInputStream;
import org.apache.commons.compress.archivers.tar.TarArchiveOutputStream;
import org.testcontainers.DockerClientFactory;

public class DockerJava {
    static final String IMAGE = "ubuntu:24.04";
    static final DockerClient client = DockerClientFactory.lazyClient();

    static class Output extends ResultCallback.Adapter<Frame> {
        final StringBuilder said = new StringBuilder();

        @Override
        public void onNext(Frame frame) {
            said.append(new String(frame.getPayload(), StandardCharsets.UTF_8));
        }

        String whole() throws InterruptedException {
            awaitCompletion(30, TimeUnit.SECONDS);
            return said.toString();
        }
    }

    static String created(HostConfig host, String... command) {
        return client.createContainerCmd(IMAGE).withHostConfig(host).withCmd(command).exec().getId();
    }

    static String started(String... command) {
        String id = created(HostConfig.newHostConfig(), command);
        client.startContainerCmd(id).exec();
        return id;
    }

    static String run(HostConfig host, String... command) throws InterruptedException {
        String id = created(host, command);
        var attach = client.attachContainerCmd(id).withStdOut(true).withStdErr(true).withFollowStream(true);
        Output out = attach.exec(new Output());
        out.awaitStarted();
        client.startContainerCmd(id).exec();
        return out.whole();
    }

    static Object version() {
        client.pingCmd().exec();
        var said = client.versionCmd().exec();
        return Map.of("api", said.getApiVersion(), "os", said.getOperatingSystem(), "ping", true);
    }

    static Object exitStatus() {
        return client.waitContainerCmd(started("sh", "-c", "exit 7")).start().awaitStatusCode();
    }

    static Object exec() throws InterruptedException {
        String box = started("sleep", "60");
        var asked = client.execCreateCmd(box).withAttachStdout(true).withCmd("sh", "-c", "echo inside; exit 5");
        String id = asked.exec().getId();
        String said = client.execStartCmd(id).exec(new Output()).whole();
        return List.of(said, client.inspectExecCmd(id).exec().getExitCodeLong());
    }

    // The command ends by itself: docker-java does not pass the end of its input on.
    static Object execStdin() throws InterruptedException {
        String box = started("sleep", "60");
        var asked = client.execCreateCmd(box).withAttachStdin(true).withAttachStdout(true).withCmd("head", "-n", "1");
        String id = asked.exec().getId();
        InputStream fed = new ByteArrayInputStream("fed\n".getBytes());
        return client.execStartCmd(id).withStdIn(fed).exec(new Output()).whole();
    }

    static Object logs() throws InterruptedException {
        String box = started("sh", "-c", "echo one; sleep 1; echo two");
        return client.logContainerCmd(box).withStdOut(true).withFollowStream(true).exec(new Output()).whole();
    }

    static Object events() throws Exception {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        var heard = new ResultCallback.Adapter<Event>() {
            @Override
            public void onNext(Event event) {
                seen.add(event.getAction());
                if (event.getAction().equals("die")) onComplete();
            }
        };
        client.eventsCmd().withLabelFilter(Map.of("seen", "1")).exec(heard).awaitStarted();
        String id = client.createContainerCmd(IMAGE).withCmd("true").withLabels(Map.of("seen", "1")).exec().getId();
        client.startContainerCmd(id).exec();
        heard.awaitCompletion(20, TimeUnit.SECONDS);
        return seen.stream().filter(Set.of("create", "start", "die")::contains).toList();
    }

    static Object archive() throws Exception {
        var packed = new ByteArrayOutputStream();
        try (var tar = new TarArchiveOutputStream(packed)) {
            var entry = new TarArchiveEntry("file");
            entry.setSize(4);
            tar.putArchiveEntry(entry);
            tar.write("data".getBytes());
            tar.closeArchiveEntry();
        }
        String box = created(HostConfig.newHostConfig(), "true");
        InputStream sent = new ByteArrayInputStream(packed.toByteArray());
        client.copyArchiveToContainerCmd(box).withTarInputStream(sent).withRemotePath("/tmp").exec();
        return unpacked(box, "/tmp/file");
    }

    // docker-java packs a file of the machine as tar.gz.
    static Object compressed() throws Exception {
        Path file = Files.writeString(Files.createTempDirectory("packed").resolve("file"), "data");
        String box = created(HostConfig.newHostConfig(), "true");
        return client.copyArchiveToContainerCmd(box).withHostResource(file.toString()).withRemotePath("/tmp").exec();
    }

    static Object network() {
        var asked = client.createNetworkCmd().withName("made").withDriver("bridge").withLabels(Map.of("a", "b"));
        String made = asked.exec().getId();
        String box = created(HostConfig.newHostConfig(), "true");
        var endpoint = new ContainerNetwork().withAliases("alias");
        client.connectToNetworkCmd().withNetworkId(made).withContainerId(box).withContainerNetwork(endpoint).exec();
        var networks = client.inspectContainerCmd(box).exec().getNetworkSettings().getNetworks();
        client.disconnectFromNetworkCmd().withNetworkId(made).withContainerId(box).exec();
        client.removeNetworkCmd(made).exec();
        return networks.get("made").getAliases();
    }

    static Object commit() throws InterruptedException {
        String box = created(HostConfig.newHostConfig(), "true");
        String id = client.commitCmd(box).withRepository("made").withTag("2").withCmd("echo", "committed").exec();
        String made = client.createContainerCmd(id).exec().getId();
        client.startContainerCmd(made).exec();
        client.waitContainerCmd(made).start().awaitStatusCode();
        String said = client.logContainerCmd(made).withStdOut(true).exec(new Output()).whole();
        client.removeContainerCmd(made).exec();
        client.removeImageCmd(id).withForce(true).exec();
        return said;
    }

    static List<String> unpacked(String box, String path) throws Exception {
        try (var tar = new TarArchiveInputStream(client.copyArchiveFromContainerCmd(box, path).exec())) {
            String name = tar.getNextEntry().getName();
            return List.of(name, new String(tar.readAllBytes()));
        }
    }

    static Object build() throws Exception {
        Path folder = Files.createTempDirectory("build");
        Files.writeString(folder.resolve("Dockerfile"), "FROM " + IMAGE + "\nRUN echo built >/f\n");
        var building = client.buildImageCmd(folder.toFile()).withNetworkMode("none");
        String id = building.exec(new BuildImageResultCallback()).awaitImageId();
        String box = client.createContainerCmd(id).withCmd("true").exec().getId();
        String said = unpacked(box, "/f").get(1);
        client.removeContainerCmd(box).exec();
        client.removeImageCmd(id).withForce(true).exec();
        return said;
    }

    static HostConfig asking(DeviceRequest request) {
        return HostConfig.newHostConfig().withDeviceRequests(List.of(request));
    }

    static DeviceRequest cdi(String name) {
        return new DeviceRequest().withDriver("cdi").withDeviceIds(List.of(name));
    }

    static DeviceRequest gpu(DeviceRequest request) {
        return request.withCapabilities(List.of(List.of("gpu")));
    }

    static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n").replace("\r", "") + '"';
    }

    static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            var fields = map.entrySet().stream().map(e -> json(e.getKey()) + ":" + json(e.getValue()));
            return "{" + String.join(",", fields.toList()) + "}";
        }
        if (value instanceof List<?> list) {
            return "[" + String.join(",", list.stream().map(DockerJava::json).toList()) + "]";
        }
        return value instanceof String text ? quoted(text) : String.valueOf(value);
    }

    public static void main(String[] words) {
        String granted = words[0], ungranted = words[1];
        HostConfig none = HostConfig.newHostConfig();
        Map<String, Callable<Object>> steps = new LinkedHashMap<>();
        steps.put("version", DockerJava::version);
        steps.put("run", () -> run(none, "echo", "hi"));
        steps.put("exit_status", DockerJava::exitStatus);
        steps.put("exec", DockerJava::exec);
        steps.put("exec_stdin", DockerJava::execStdin);
        steps.put("logs", DockerJava::logs);
        steps.put("events", DockerJava::events);
        steps.put("archive", DockerJava::archive);
        steps.put("network", DockerJava::network);
        steps.put("commit", DockerJava::commit);
        steps.put("build", DockerJava::build);
        steps.put("device", () -> run(asking(cdi(granted)), "sh", "-c", "(cat </dev/nvidia0) 2>&1; true"));
        steps.put("ungranted", () -> run(asking(cdi(ungranted)), "true"));
        steps.put("gpus", () -> run(asking(gpu(new DeviceRequest().withCount(-1))), "true"));
        steps.put("gpus_by_cdi", () -> run(asking(gpu(cdi(granted))), "true"));
        var node = new Device("rwm", "/dev/nvidia0", "/dev/nvidia0");
        steps.put("raw_device", () -> run(HostConfig.newHostConfig().withDevices(node), "true"));
        steps.put("compressed", DockerJava::compressed);
        steps.put("privileged", () -> run(HostConfig.newHostConfig().withPrivileged(true), "true"));
        Map<String, Object> found = new LinkedHashMap<>();
        steps.forEach((name, step) -> {
            try {
                found.put(name, step.call());
            } catch (Exception error) {
                found.put(name, Map.of("error", error.getClass().getSimpleName(), "said", error.getMessage() + ""));
            }
        });
        for (var box : client.listContainersCmd().withShowAll(true).exec()) {
            client.removeContainerCmd(box.getId()).withForce(true).exec();
        }
        System.out.println(json(found));
        System.exit(0);
    }
}
