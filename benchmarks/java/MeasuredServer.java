import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.javalin.Javalin;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hudi.common.config.HoodieCommonConfig;
import org.apache.hudi.common.config.HoodieMetadataConfig;
import org.apache.hudi.common.engine.HoodieLocalEngineContext;
import org.apache.hudi.common.table.view.FileSystemViewManager;
import org.apache.hudi.common.table.view.FileSystemViewStorageConfig;
import org.apache.hudi.common.table.view.FileSystemViewStorageType;
import org.apache.hudi.storage.StorageConfiguration;
import org.apache.hudi.storage.hadoop.HadoopStorageConfiguration;
import org.apache.hudi.timeline.service.TimelineService;

/**
 * Hudi's timeline server as a process, with its file-system calls counted.
 *
 * <p>Arguments: whether the view follows the timeline incrementally, its storage type, a directory
 * for its files, the bytes that a spillable one keeps in memory, and the milliseconds that each
 * file-system call takes longer, as on an object store. When both ports listen, one line goes to standard output: "ready PORT FIGURES_PORT". GET /figures on the second port collects
 * garbage and answers the live heap and the calls so far.
 *
 * <p>TimelineService.main is of no use here: its process ends as soon as the server is up, for all
 * its threads are daemons, and it listens on every interface.
 */
public final class MeasuredServer {
  private MeasuredServer() {}

  public static void main(String[] arguments) throws Exception {
    Counting.delayMs = Long.parseLong(arguments[4]);
    Configuration hadoop = new Configuration();
    hadoop.set("fs.file.impl", Counting.class.getName());
    StorageConfiguration<Configuration> storage = new HadoopStorageConfiguration(hadoop);
    FileSystemViewStorageConfig views =
        FileSystemViewStorageConfig.newBuilder()
            .withIncrementalTimelineSync(Boolean.parseBoolean(arguments[0]))
            .withStorageType(FileSystemViewStorageType.valueOf(arguments[1]))
            .withBaseStoreDir(arguments[2])
            .withRocksDBPath(arguments[2])
            .withMaxMemoryForView(Long.parseLong(arguments[3]))
            .build();
    FileSystemViewManager manager =
        FileSystemViewManager.createViewManagerWithTableMetadata(
            new HoodieLocalEngineContext(storage),
            HoodieMetadataConfig.newBuilder().build(),
            views,
            HoodieCommonConfig.newBuilder().build());
    TimelineService.Config config =
        TimelineService.Config.builder().serverPort(0).enableMarkerRequests(true).build();
    int port = listen(new TimelineService(storage, config, manager));
    HttpServer figures = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    figures.createContext("/figures", MeasuredServer::answerFigures);
    figures.start();
    System.out.println("ready " + port + " " + figures.getAddress().getPort());
    Thread.currentThread().join();
  }

  /** Does what startService does, but on the loopback interface only. */
  private static int listen(TimelineService service) throws ReflectiveOperationException {
    Method create = TimelineService.class.getDeclaredMethod("createApp");
    create.setAccessible(true);
    create.invoke(service);
    Field app = TimelineService.class.getDeclaredField("app");
    app.setAccessible(true);
    return ((Javalin) app.get(service)).start("127.0.0.1", 0).port();
  }

  private static void answerFigures(HttpExchange exchange) throws IOException {
    System.gc();
    long heap = ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    String calls =
        Counting.CALLS.entrySet().stream()
            .map(call -> "\"" + call.getKey() + "\":" + call.getValue().sum())
            .collect(Collectors.joining(","));
    String said = "{\"heap_bytes\":" + heap + ",\"calls\":{" + calls + "}}";
    byte[] body = said.getBytes(StandardCharsets.UTF_8);
    exchange.sendResponseHeaders(200, body.length);
    exchange.getResponseBody().write(body);
    exchange.close();
  }

  /** The local file system; counts what an object store would charge for. */
  public static final class Counting extends LocalFileSystem {
    static final Map<String, LongAdder> CALLS = new ConcurrentHashMap<>();

    static volatile long delayMs;

    private static void count(String kind) throws IOException {
      CALLS.computeIfAbsent(kind, unused -> new LongAdder()).increment();
      if (delayMs > 0) {
        try {
          Thread.sleep(delayMs);
        } catch (InterruptedException error) {
          throw new InterruptedIOException(kind);
        }
      }
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
      count("list");
      return super.listStatus(path);
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
      count("stat");
      return super.getFileStatus(path);
    }

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
      count("read");
      return super.open(path, bufferSize);
    }
  }
}
