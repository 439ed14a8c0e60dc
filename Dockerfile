# Hulk's image: operator, agent, launcher and runtime in /opt/hulk, beside the Python (and torch) of the base.
#
# The build context is a folder with requirements.txt, wheels/ (every dependency) and hulk_operator-*.whl;
# `hulk-lab image` makes it and prints where it is. BASE decides which Python and torch jobs get: an image with Python 3.11
# or newer and its venv module. wheels/ are those of the machine that made the context; for another Python pip takes the
# same versions, with the same checksums, from the package index. For another architecture make the context there: Hulk's
# own wheel holds a library.
ARG BASE=docker.io/library/python:3.11-slim
FROM ${BASE}

# The agent measures bandwidth with iperf3; false when the base has it already.
ARG INSTALL_IPERF3=true
RUN if [ "$INSTALL_IPERF3" = true ]; then \
        apt-get update && apt-get install -y --no-install-recommends iperf3 && rm -rf /var/lib/apt/lists/*; \
    fi && \
    echo 'hulk:x:65532:65532:Hulk:/tmp:/bin/sh' >> /etc/passwd && echo 'hulk:x:65532:' >> /etc/group

# --system-site-packages: what the base brings (torch) is used, not brought again.
# PIP_NO_INDEX=1 refuses to look anywhere but in wheels/.
ARG PIP_NO_INDEX=
COPY requirements.txt /opt/hulk/requirements.txt
RUN --mount=type=bind,source=wheels,target=/wheels \
    python3 -m venv --system-site-packages /opt/hulk && \
    /opt/hulk/bin/python -m pip install --quiet --find-links=/wheels -r /opt/hulk/requirements.txt

COPY hulk_operator-*.whl /opt/hulk/
RUN /opt/hulk/bin/python -m pip install --quiet --no-index --no-deps /opt/hulk/hulk_operator-*.whl

ENV PATH=/opt/hulk/bin:$PATH \
    PYTHONUNBUFFERED=1
USER 65532:65532
CMD ["hulk", "--help"]
