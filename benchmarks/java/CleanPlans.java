import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.hudi.client.SparkRDDWriteClient;
import org.apache.hudi.client.common.HoodieSparkEngineContext;
import org.apache.hudi.common.model.TableServiceType;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.config.HoodieWriteConfig;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;

/**
 * Plans cleans by Hudi's writer in one JVM, with local Spark, and counts the file-system calls.
 *
 * <p>Each line of standard input is a job: the base path, then options as KEY=VALUE. The answer is
 * one line: "done INSTANT NANOSECONDS CPU_NANOSECONDS LISTS STATS READS"; the instant is "-" if
 * nothing is planned. Measured is scheduleTableService, which reads the timeline, plans, and writes
 * the requested instant. Each job has a client of its own, whose timeline server starts before.
 */
public final class CleanPlans {
  private CleanPlans() {}

  public static void main(String[] arguments) throws Exception {
    SparkConf conf =
        new SparkConf()
            .setMaster("local[*]")
            .setAppName("cleans")
            .set("spark.ui.enabled", "false")
            .set("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
            .set("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
            .set("spark.hadoop.fs.file.impl", MeasuredServer.Counting.class.getName());
    OperatingSystemMXBean process =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    try (JavaSparkContext spark = new JavaSparkContext(conf)) {
      spark.setLogLevel("WARN"); // lines of each task would take as long as its work
      System.out.println("ready");
      BufferedReader jobs =
          new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      for (String job = jobs.readLine(); job != null; job = jobs.readLine()) {
        String[] words = job.split(" ");
        Properties options = new Properties();
        for (int option = 1; option < words.length; option++) {
          String[] pair = words[option].split("=", 2);
          options.setProperty(pair[0], pair[1]);
        }
        HoodieWriteConfig config =
            HoodieWriteConfig.newBuilder().withPath(words[0]).withProps(options).build();
        try (SparkRDDWriteClient<?> client =
            new SparkRDDWriteClient<>(new HoodieSparkEngineContext(spark), config)) {
          Map<String, Long> before = calls();
          long cpu = process.getProcessCpuTime();
          long started = System.nanoTime();
          Option<String> instant =
              client.scheduleTableService(Option.empty(), TableServiceType.CLEAN);
          long lasted = System.nanoTime() - started;
          cpu = process.getProcessCpuTime() - cpu;
          StringBuilder answer = new StringBuilder("done ");
          answer.append(instant.orElse("-")).append(" ").append(lasted).append(" ").append(cpu);
          Map<String, Long> after = calls();
          for (String kind : new String[] {"list", "stat", "read"}) {
            long made = after.getOrDefault(kind, 0L) - before.getOrDefault(kind, 0L);
            answer.append(" ").append(made);
          }
          System.out.println(answer);
        }
      }
    }
  }

  private static Map<String, Long> calls() {
    Map<String, Long> found = new TreeMap<>();
    MeasuredServer.Counting.CALLS.forEach((kind, count) -> found.put(kind, count.sum()));
    return found;
  }
}
