# nmt-serve in a container; docs/howto/serve.md shows how to run it:
#   docker build -t nmt-serve .
FROM python:3.12-slim

WORKDIR /opt/nmt
COPY setup.cfg pyproject.toml constraints.txt README.md LICENSE ./
COPY nmt nmt
COPY data_prep data_prep
# the second index has torch without its GPU libraries of several GB
RUN pip install --no-cache-dir -c constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu ".[serve]"

RUN useradd --create-home --uid 1000 nmt && install -d -o nmt /model /corrections
USER nmt
WORKDIR /home/nmt

# a run folder or an exported folder, which may be read-only; and the file of --corrections
VOLUME ["/model", "/corrections"]
EXPOSE 8000
HEALTHCHECK --start-period=60s --interval=30s --timeout=10s \
    CMD python -c "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health', timeout=5)"

# other addresses than 127.0.0.1 require a key: docker run -e NMT_SERVE_API_KEY=...
ENTRYPOINT ["nmt-serve", "--host", "0.0.0.0"]
CMD ["/model"]
