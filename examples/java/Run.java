// Runs an optimized model: Run LIBRARY MODEL, where LIBRARY is what `onnxfuse library` prints.
// The artifact is com.microsoft.onnxruntime:onnxruntime (or onnxruntime_gpu).
import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtSession;
import java.util.Map;

public final class Run {
  public static void main(String[] arguments) throws OrtException {
    OrtEnvironment environment = OrtEnvironment.getEnvironment();
    float[][] x = new float[1][64];
    for (int i = 0; i < 64; i++) {
      x[0][i] = -2 + 4 * i / 63f;
    }
    try (OrtSession.SessionOptions options = new OrtSession.SessionOptions()) {
      options.registerCustomOpLibrary(arguments[0]); // once a session
      try (OrtSession session = environment.createSession(arguments[1], options);
          OnnxTensor input = OnnxTensor.createTensor(environment, x);
          OrtSession.Result results =
              session.run(Map.of(session.getInputNames().iterator().next(), input))) {
        float[][] y = (float[][]) results.get(0).getValue();
        System.out.printf("%.5f %.5f %.5f %.5f%n", y[0][0], y[0][1], y[0][2], y[0][3]);
      }
    }
  }
}
